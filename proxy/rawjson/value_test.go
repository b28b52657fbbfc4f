package rawjson_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/muxproxy/muxproxy/proxy/rawjson"
)

func TestStringsAreDecodedAsEncodingJSONDoes(t *testing.T) {
	for _, raw := range []string{
		`""`, `"plain"`, `"\"\\\/\b\f\n\r\t"`, `"\u00fc\u5317"`, `"北😀"`, `"\ud83d\ude00"`, `"\uD83D\uDE00"`,
		`"\ud800"`, `"\udc00"`, `"\ud800x"`, `"\ud800\n"`, `"\ud800\u0041"`, `"\ud800\ud83d\ude00"`, `"\ude00\ud83d"`,
		"\"a\xffb\"", "\"\xe5\x8c\"", "\"\xf0\x9f\x98\x80\xed\xa0\x80\"", `"\u0000"`, `"long enough for eight \" at a time"`,
	} {
		var want string
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if got, ok := rawjson.String([]byte(raw)); !ok || got != want {
			t.Errorf("String(%s) = %q, %v; want %q", raw, got, ok, want)
		}
		if got := rawjson.AppendString([]byte("before"), []byte(raw)); string(got) != "before"+want {
			t.Errorf("AppendString(%s) = %q; want %q", raw, got, "before"+want)
		}
	}
	for _, raw := range []string{`1`, `null`, `{}`, `["a"]`, ``} {
		if got, ok := rawjson.String([]byte(raw)); ok || got != "" {
			t.Errorf("String(%s) = %q, %v", raw, got, ok)
		}
		if got := rawjson.AppendString([]byte("before"), []byte(raw)); string(got) != "before" {
			t.Errorf("AppendString(%s) = %q", raw, got)
		}
	}
}

func TestIntIsExactHoweverANumberIsWritten(t *testing.T) {
	zeros := strings.Repeat("0", 400)
	for raw, want := range map[string]int64{
		"0": 0, "-0": 0, "0.0": 0, "0e999999999999999999999": 0, "-0.0e-5": 0, "7": 7, "-12": -12, " 12 \n": 12,
		"12.0": 12, "12.000": 12, "1e3": 1000, "1E+3": 1000, "1.5e1": 15, "1200e-2": 12, "0.00012e5": 12, "-1.20e1": -12,
		"1" + zeros + "e-400": 1, "0." + zeros + "1e401": 1, "1." + zeros: 1,
		"9007199254740993": 9007199254740993, "9007199254740993.0": 9007199254740993,
		"9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64, "9.223372036854775807e18": math.MaxInt64,
		"1000000000000000000": 1e18, "1e18": 1e18,
	} {
		if got, ok := rawjson.Int([]byte(raw)); !ok || got != want {
			t.Errorf("Int(%.40s) = %d, %v; want %d", raw, got, ok, want)
		}
	}
	for _, raw := range []string{
		"0.5", "12.5", "1e-1", "1.23e1", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "1e19", "1e400",
		"1e99999999999999999999", "1e-99999999999999999999", "1e9223372036854775807", "1e-9223372036854775808",
		"12345678901234567890", "99999999999999999999", `"1"`, "true", "null", "", "-", "01", "1.", "1e", "1x", "+1",
	} {
		if got, ok := rawjson.Int([]byte(raw)); ok || got != 0 {
			t.Errorf("Int(%s) = %d, %v; want not ok", raw, got, ok)
		}
	}
}

func TestIntAgreesWithStrconvOnPlainIntegers(t *testing.T) {
	for n := int64(1); n > 0 && n < math.MaxInt64/3; n *= 3 {
		for _, n := range []int64{n, -n, n - 1} {
			if got, ok := rawjson.Int(strconv.AppendInt(nil, n, 10)); !ok || got != n {
				t.Errorf("Int(%d) = %d, %v", n, got, ok)
			}
		}
	}
}

func TestBoolTakesOnlyTrueAndFalse(t *testing.T) {
	for raw, want := range map[string][2]bool{
		"true": {true, true}, "\t true \n": {true, true}, "false": {false, true},
		"null": {}, "1": {}, `"true"`: {}, "": {}, "tru": {},
	} {
		if v, ok := rawjson.Bool([]byte(raw)); v != want[0] || ok != want[1] {
			t.Errorf("Bool(%q) = %v, %v; want %v", raw, v, ok, want)
		}
	}
}

func TestQuoteEscapesOnlyWhatItMust(t *testing.T) {
	for s, want := range map[string]string{
		"":               `""`,
		"plain":          `"plain"`,
		"<a href=\"&\">": `"<a href=\"&\">"`,
		`c:\dir`:         `"c:\\dir"`,
		"\b\f\n\r\t":     `"\b\f\n\r\t"`,
		"\x00\x1f\x7f":   "\"\\u0000\\u001f\x7f\"",
		"北😀\u2028":       "\"北😀\u2028\"",
		"a\xffb":         "\"a\ufffdb\"",
	} {
		if got := rawjson.Quote([]byte("x"), s); string(got) != "x"+want {
			t.Errorf("Quote(%q) = %s; want %s", s, got[1:], want)
		}
	}
}
