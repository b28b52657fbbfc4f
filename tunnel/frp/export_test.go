package frp

// What a scripted server and the fuzz tests speak.
var (
	ReadMessage    = readMessage
	WriteMessage   = writeMessage
	EncryptControl = encryptControl
)

// MaxMessage is the longest content of a message.
const MaxMessage = maxMessage
