package transcode

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestEveryByteInEveryPlace: text is looked at eight bytes at a time; each byte is put
// into each place of texts of each length around that.
func TestEveryByteInEveryPlace(t *testing.T) {
	t.Parallel()
	base := strings.Repeat("a~ Z", 5)
	for n := range len(base) + 1 {
		for i := range n {
			for c := range 256 {
				// A second one behind it catches what leaks into the next byte.
				for _, next := range []string{base[i+1:], string(rune(base[0])) + "\x1f", "\"", "!", "é", "\u2028"} {
					s := base[:i] + string([]byte{byte(c)}) + next
					s = s[:min(len(s), n)]
					want, err := json.Marshal(s)
					if err != nil {
						t.Fatal(err)
					}
					if got := AppendString(nil, s); string(got) != string(want) {
						t.Fatalf("%q: got %s, want %s", s, got, want)
					}
					// What is taken over unseen must be what encoding/json makes of it.
					raw := []byte(`{"f:` + s + `":{}}`)
					if again, err := json.Marshal(json.RawMessage(raw)); verbatim(raw) && (err != nil || string(again) != string(raw)) {
						t.Fatalf("%q was taken over", raw)
					}
				}
			}
		}
	}
}

// TestKnownJSON: what was checked once is not taken for what only looks like it.
func TestKnownJSON(t *testing.T) {
	t.Parallel()
	var tr Transcoder
	for range 2 {
		for raw, want := range map[string]string{
			`{"f:a":{}}`: `{"f:a":{}}`, `{"f:b":{}}`: `{"f:b":{}}`, `{"f:a":{}]`: "", `{"f:<":{}}`: `{"f:\u003c":{}}`, `{"f:a": {}}`: `{"f:a":{}}`, ``: "",
		} {
			got, err := tr.json(nil, []byte(raw))
			if string(got) != want || (err == nil) != (want != "") {
				t.Errorf("%s: %s, %v", raw, got, err)
			}
		}
	}
}
