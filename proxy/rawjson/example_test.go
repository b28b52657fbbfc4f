package rawjson_test

import (
	"fmt"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

func Example() {
	body := []byte(`{"model": "any", "seed": 12345678901234567890, "messages": [{"role": "user", "content": "1 < 2"}]}`)
	request, err := rawjson.ParseObject(body, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	messages, _ := request.Get("messages")
	for message := range rawjson.Elements(messages) {
		content, _ := rawjson.String(rawjson.Lookup(message, "content"))
		fmt.Println(content)
	}

	edited := request.Apply([]rawjson.Edit{
		{Key: "model", Value: rawjson.Quote(nil, "Qwen/Qwen3-8B")},
		{Key: "temperature", Value: []byte("1.0")},
	})
	fmt.Println(string(edited))
	// Output:
	// 1 < 2
	// {"model": "Qwen/Qwen3-8B", "seed": 12345678901234567890, "messages": [{"role": "user", "content": "1 < 2"}],"temperature":1.0}
}
