package metrics

import (
	"net/http"
	"strconv"

	"github.com/muxproxy/muxproxy/registry"
)

// Other is the value every label takes in place of a value outside its closed set.
const Other = "other"

// Route is the canonical pattern of a data-plane path, the value of the label route.
type Route string

// The routes of the data plane. Whatever else a client asks for is RouteOther.
const (
	RouteChat        Route = "/v1/chat/completions"
	RouteCompletions Route = "/v1/completions"
	RouteResponses   Route = "/v1/responses"
	RouteMessages    Route = "/v1/messages"
	RouteCountTokens Route = "/v1/messages/count_tokens"
	RouteEmbeddings  Route = "/v1/embeddings"
	RouteTokenize    Route = "/tokenize"
	RouteDetokenize  Route = "/detokenize"
	RouteModels      Route = "/v1/models"
	RouteModel       Route = "/v1/models/{id}"
	RouteRoot        Route = "/"
	RouteHealth      Route = "/healthz"
	RouteOther       Route = Other
)

// Routes lists every value of the label route.
func Routes() []Route {
	return append(recordedRoutes(), RouteCountTokens, RouteEmbeddings, RouteTokenize, RouteDetokenize,
		RouteModels, RouteModel, RouteRoot, RouteHealth, RouteOther)
}

// recordedRoutes lists the routes whose calls become turns, one a dialect.
func recordedRoutes() []Route {
	return []Route{RouteChat, RouteCompletions, RouteResponses, RouteMessages}
}

// Outcome says how a data-plane request ended, the value of the label outcome.
type Outcome string

// The outcomes of a request.
const (
	OutcomeOK                 Outcome = "ok"
	OutcomeClientError        Outcome = "client_error"        // the upstream answered 4xx
	OutcomeUpstreamError      Outcome = "upstream_error"      // the upstream answered 5xx, or nothing usable
	OutcomeUpstreamTruncated  Outcome = "upstream_truncated"  // the answer ended before it was complete
	OutcomeUpstreamTimeout    Outcome = "upstream_timeout"    // an upstream budget ran out
	OutcomeConnection         Outcome = "connection"          // no connection, or it broke before the answer
	OutcomeClientDisconnected Outcome = "client_disconnected" // the client left first
	OutcomeCancelled          Outcome = "cancelled"           // its session ended, was stopped or ran out of time
	OutcomeRefused            Outcome = "refused"             // answered by muxproxy itself; see the label reason
	OutcomeCommitFailed       Outcome = "commit_failed"       // the turn could not be recorded
	OutcomeAborted            Outcome = "aborted"             // given up by muxproxy, a panic included
	OutcomeOther              Outcome = Other
)

// Outcomes lists every value of the label outcome.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeOK, OutcomeClientError, OutcomeUpstreamError, OutcomeUpstreamTruncated, OutcomeUpstreamTimeout,
		OutcomeConnection, OutcomeClientDisconnected, OutcomeCancelled, OutcomeRefused, OutcomeCommitFailed,
		OutcomeAborted, OutcomeOther,
	}
}

// Reason says why muxproxy itself refused a call or a registration, the value of the label reason of
// refusals_total. Where the answer carries an error code, Reason is that code; 429 is split by what was full.
type Reason string

// The reasons of a refusal.
const (
	ReasonInvalidAPIKey        Reason = "invalid_api_key"
	ReasonSessionEnded         Reason = "session_ended"
	ReasonSessionStopped       Reason = "session_stopped"
	ReasonInvalidRequest       Reason = "invalid_request"
	ReasonNotFound             Reason = "not_found"
	ReasonMethodNotAllowed     Reason = "method_not_allowed"
	ReasonBodyTooLarge         Reason = "body_too_large"
	ReasonUnsupportedMediaType Reason = "unsupported_media_type"
	ReasonUpgradeRequired      Reason = "upgrade_required"
	ReasonSessionInflight      Reason = "max_inflight"        // the session's own concurrency
	ReasonSessionRate          Reason = "requests_per_second" // the session's own rate
	ReasonInstance             Reason = "instance"            // concurrency or rate of the whole proxy
	ReasonInflightBytes        Reason = "max_inflight_bytes"  // bodies held by the whole proxy
	ReasonUpstreamUnavailable  Reason = "upstream_unavailable"
	ReasonPaused               Reason = "paused"      // the upstream rejects calls for a while
	ReasonHookFailed           Reason = "hook_failed" // a URL of the session had no answer
	ReasonDraining             Reason = "draining"
	ReasonJoinedCallFailed     Reason = "joined_call_failed"
	ReasonTooManySessions      Reason = "too_many_sessions" // a registration over MAX_SESSIONS
	ReasonMemoryFull           Reason = "memory_full"       // a registration over MAX_TRACE_BYTES
	ReasonPoolWaiting          Reason = "pool_waiting"      // a registration that found no place in time
	ReasonPoolFull             Reason = "pool_full"         // one of more sessions than the pool has places
	ReasonTunnelFailed         Reason = "tunnel_failed"     // one for which no server could be opened
	ReasonTunnelBacklog        Reason = "tunnel_backlog"    // one whose server would be opened too late
	ReasonOther                Reason = Other
)

// Reasons lists every value of the label reason of refusals_total.
func Reasons() []Reason {
	return []Reason{
		ReasonInvalidAPIKey, ReasonSessionEnded, ReasonSessionStopped, ReasonInvalidRequest, ReasonNotFound,
		ReasonMethodNotAllowed, ReasonBodyTooLarge, ReasonUnsupportedMediaType, ReasonUpgradeRequired,
		ReasonSessionInflight, ReasonSessionRate, ReasonInstance, ReasonInflightBytes, ReasonUpstreamUnavailable, ReasonPaused, ReasonHookFailed,
		ReasonDraining, ReasonJoinedCallFailed, ReasonTooManySessions, ReasonMemoryFull,
		ReasonPoolWaiting, ReasonPoolFull, ReasonTunnelFailed, ReasonTunnelBacklog, ReasonOther,
	}
}

// Replay says what became of a retry, the value of the label kind of replays_total.
type Replay string

// What becomes of a retry.
const (
	ReplayReplayed Replay = "replayed" // answered from the turn that was recorded
	ReplayJoined   Replay = "joined"   // took over a call that was running
	ReplayRerun    Replay = "rerun"    // ran, as what it repeats had made no turn
	ReplayNew      Replay = "new"      // ran, as there was nothing that it could repeat
	ReplayOther    Replay = Other
)

// Replays lists every value of the label kind of replays_total.
func Replays() []Replay {
	return []Replay{ReplayReplayed, ReplayJoined, ReplayRerun, ReplayNew, ReplayOther}
}

// TokenType is what a token count counts, the value of the label type of tokens_total.
// Input includes the cached tokens and output includes the reasoning tokens.
type TokenType string

// The token types.
const (
	TokensInput     TokenType = "input"
	TokensOutput    TokenType = "output"
	TokensCached    TokenType = "cached"
	TokensReasoning TokenType = "reasoning"
)

// TokenTypes lists every value of the label type of tokens_total.
func TokenTypes() []TokenType {
	return []TokenType{TokensInput, TokensOutput, TokensCached, TokensReasoning}
}

// Dialects lists every value of the label dialect.
func Dialects() []string {
	return []string{"chat", "completions", "responses", "messages", Other}
}

// FailureKinds lists every value of the label kind of failed_calls_total: the registry's own kinds and Other.
func FailureKinds() []registry.FailureKind {
	return append(registry.FailureKinds(), Other)
}

// EndReasons lists every value of the label reason of sessions_ended_total.
func EndReasons() []string {
	return []string{registry.ReasonDeleted, registry.ReasonLeaseExpired, Other}
}

// The values of the label code of a request that an upstream gave no status to.
const (
	CodeDialError       = "dial_error"       // no connection; nothing was sent
	CodeConnectionError = "connection_error" // the connection broke before the answer
	CodeCanceled        = "canceled"         // given up before the answer
)

// Codes lists every value of the label code.
func Codes() []string {
	codes := make([]string, 0, 48)
	for _, status := range statuses() {
		codes = append(codes, strconv.Itoa(status))
	}
	return append(codes, "1xx", "2xx", "3xx", "4xx", "5xx", CodeDialError, CodeConnectionError, CodeCanceled, Other)
}

// statuses lists the status codes that are a label value of their own.
func statuses() []int {
	return []int{
		http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent,
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden,
		http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestTimeout, http.StatusConflict,
		http.StatusGone, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity, http.StatusUpgradeRequired, http.StatusTooManyRequests, statusClientGone,
		http.StatusInternalServerError, http.StatusNotImplemented, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout, statusOverloaded,
	}
}

const (
	statusClientGone = 499 // nginx's: the client closed the request
	statusOverloaded = 529 // Anthropic's: overloaded
)

// codeTable maps a status code to its label value, by index, so that a request looks it up without allocating.
type codeTable [600]string

func newCodeTable() *codeTable {
	var t codeTable
	classes := [...]string{Other, "1xx", "2xx", "3xx", "4xx", "5xx"}
	for status := range t {
		t[status] = classes[status/100]
	}
	for _, status := range statuses() {
		t[status] = strconv.Itoa(status)
	}
	return &t
}

func (t *codeTable) label(status int) string {
	if status < 0 || status >= len(t) {
		return Other
	}
	return t[status]
}

// parse gives the label value of a code that is a status in decimal or one of the Code constants.
func (t *codeTable) parse(code string) string {
	switch code {
	case CodeDialError, CodeConnectionError, CodeCanceled:
		return code
	}
	status, err := strconv.Atoi(code)
	if err != nil {
		return Other
	}
	return t.label(status)
}
