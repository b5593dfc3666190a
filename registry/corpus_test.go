package registry

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/etcdctl-plus/etcdctl-plus/inspect/sourcetest/corpus"
	"github.com/etcdctl-plus/etcdctl-plus/registry/transcode"
)

// stored is one live key of a snapshot.
type stored struct {
	value []byte
	rev   int64
}

// live reads the newest values of a database file.
func live(t testing.TB, path string) map[string]stored {
	t.Helper()
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{ReadOnly: true, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	out := map[string]stored{}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(rev, kv []byte) error {
			s := stored{rev: int64(binary.BigEndian.Uint64(rev))}
			var key string
			err := transcode.Walk(kv, func(n uint32, v []byte) error {
				if n == 1 {
					key = string(v)
				} else {
					s.value = bytes.Clone(v)
				}
				return nil
			}, 1, 5)
			if len(rev) == 18 {
				delete(out, key)
			} else {
				out[key] = s
			}
			return err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// truth is one line of stored.jsonl.
type truth struct {
	Key         string
	ModRevision int64
	Form        string
	Encryption  string
	Object      json.RawMessage
}

func truths(t testing.TB, name string) (out []truth) {
	t.Helper()
	for line := range bytes.Lines(corpus.Truth(t, name)) {
		var v truth
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// snapshots are the two databases of the corpus and what must be in them.
func snapshots(t testing.TB) map[string][]truth {
	return map[string][]truth{
		corpus.Snapshot(t): truths(t, "stored.jsonl"),
		corpus.Later(t):    truths(t, "later/stored.jsonl"),
	}
}

func encryption(t testing.TB) *EncryptionConfig {
	t.Helper()
	c, err := LoadEncryptionConfig(corpus.EncryptionConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCorpusObjects: every live object of both snapshots, sealed ones included, is
// what Kubernetes' own code made of it.
func TestCorpusObjects(t *testing.T) {
	t.Parallel()
	for path, want := range snapshots(t) {
		have := live(t, path)
		d := NewDecoder(Options{Encryption: encryption(t), ShowSecrets: true})
		if len(want) < 500 {
			t.Fatalf("only %d objects in the truth", len(want))
		}
		for _, w := range want {
			s, ok := have[w.Key]
			if !ok {
				t.Errorf("%s is not in the snapshot", w.Key)
				continue
			}
			r := d.Decode([]byte(w.Key), s.value, s.rev)
			if r.Err != nil || r.UnknownFields > 0 || r.Redacted || string(r.Encoding) != w.Form || s.rev != w.ModRevision {
				t.Errorf("%s: %s at %d, %d unknown fields, redacted %v, %v", w.Key, r.Encoding, s.rev, r.UnknownFields, r.Redacted, r.Err)
				continue
			}
			if r.Seal.Provider != w.Encryption || (w.Encryption != "") != r.Seal.Opened {
				t.Errorf("%s: sealed with %+v, want %q", w.Key, r.Seal, w.Encryption)
			}
			if diff := differ(r.Object, w.Object); diff != "" {
				t.Errorf("%s: %s", w.Key, diff)
			}
			delete(have, w.Key)
		}
		for key, s := range have {
			if strings.HasPrefix(key, "/registry/") {
				t.Errorf("%s is in the snapshot but not in the truth", key)
				continue
			}
			if r := d.Decode([]byte(key), s.value, s.rev); r.Err != nil || r.Encoding != Text || r.Object != nil || !bytes.Equal(r.Plain, s.value) {
				t.Errorf("%s: %+v", key, r)
			}
		}
	}
}

// encodings returns the encoding column of keys.tsv: "protobuf", "json",
// "enc:aescbc:v1:key1".
func encodings(t testing.TB, name string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range bytes.Lines(corpus.Truth(t, name)) {
		cols := strings.Split(string(line), "\t")
		out[cols[0]] = cols[6]
	}
	return out
}

// TestCorpusSealed: without the configuration provider and key name are shown, and
// all else goes on.
func TestCorpusSealed(t *testing.T) {
	t.Parallel()
	d := NewDecoder(Options{})
	sealed := 0
	for path, prefix := range map[string]string{corpus.Snapshot(t): "", corpus.Later(t): "later/"} {
		have := live(t, path)
		for key, want := range encodings(t, prefix+"keys.tsv") {
			s, ok := have[key]
			if !ok {
				continue // the title
			}
			r := d.Decode([]byte(key), s.value, 0)
			if name, ok := strings.CutPrefix(want, "enc:"); ok {
				sealed++
				if got := r.Seal.Provider + ":" + r.Seal.Version + ":" + r.Seal.KeyName; got != name {
					t.Errorf("%s: sealed with %s, want %s", key, got, name)
				}
				if r.Object != nil || r.Plain != nil || r.Encoding != "" || r.Seal.Opened || !errors.Is(r.Err, ErrNoKey) || !strings.Contains(r.Err.Error(), r.Seal.KeyName) {
					t.Errorf("%s: %+v", key, r)
				}
			} else if r.Err != nil || r.Object == nil && r.Encoding != Text {
				t.Errorf("%s: %v", key, r.Err)
			}
		}
	}
	if sealed < 20 {
		t.Errorf("only %d sealed values", sealed)
	}
}

// TestCorpusResourceVersion: with the option every object shows its revision, and
// but for that it is the stored one.
func TestCorpusResourceVersion(t *testing.T) {
	t.Parallel()
	d := NewDecoder(Options{Encryption: encryption(t), ShowSecrets: true, SetResourceVersion: true})
	plain := NewDecoder(Options{Encryption: encryption(t), ShowSecrets: true})
	path := corpus.Snapshot(t)
	for key, s := range live(t, path) {
		r := d.Decode([]byte(key), s.value, s.rev)
		if r.Object == nil {
			continue
		}
		line := `"resourceVersion":"` + strconv.FormatInt(s.rev, 10) + `"`
		if bytes.Count(r.Object, []byte(line)) != 1 {
			t.Errorf("%s: no %s in %.300s", key, line, r.Object)
			continue
		}
		without := r.Object
		for _, member := range []string{line + ",", "," + line, line} {
			if bytes.Contains(without, []byte(member)) {
				without = bytes.Replace(without, []byte(member), nil, 1)
			}
		}
		if p := plain.Decode([]byte(key), s.value, s.rev); !bytes.Equal(without, p.Object) {
			t.Errorf("%s:\n got %.400s\nwant %.400s", key, without, p.Object)
		}
	}
}

// TestCorpusSecretsStayHidden: with redaction on, no value of a Secret is anywhere
// in a Result, as it is or in base64, and other objects are untouched.
func TestCorpusSecretsStayHidden(t *testing.T) {
	t.Parallel()
	c := encryption(t)
	shown := NewDecoder(Options{Encryption: c, ShowSecrets: true})
	hidden := NewDecoder(Options{Encryption: c})
	secrets, values, notes := 0, 0, 0
	for path := range snapshots(t) {
		for key, s := range live(t, path) {
			open, r := shown.Decode([]byte(key), s.value, 0), hidden.Decode([]byte(key), s.value, 0)
			if open.Kind != "Secret" {
				if r.Redacted || !bytes.Equal(r.Object, open.Object) || !bytes.Equal(r.Plain, open.Plain) {
					t.Errorf("%s was redacted", key)
				}
				continue
			}
			secrets++
			if !r.Redacted || r.Plain != nil || r.Err != nil || r.Object == nil {
				t.Errorf("%s: redacted %v, plain %d bytes, %v", key, r.Redacted, len(r.Plain), r.Err)
			}
			var o struct {
				Metadata struct{ Annotations map[string]string }
				Data     map[string][]byte
			}
			if err := json.Unmarshal(open.Object, &o); err != nil {
				t.Fatal(err)
			}
			text, old := o.Metadata.Annotations[lastApplied]
			if old && text != "" {
				notes++
			}
			for name, v := range o.Data {
				values++
				if !bytes.Contains(r.Object, []byte(hidden.o.Redactor.Marker(v))) {
					t.Errorf("%s: no marker for %s", key, name)
				}
				enc, _ := json.Marshal(v)
				for _, leak := range [][]byte{v, bytes.Trim(enc, `"`)} {
					if len(leak) > 5 && name != "namespace" && name != "token-id" && bytes.Contains(r.Object, leak) {
						t.Errorf("%s: %s is shown: %s", key, name, r.Object)
					}
				}
			}
		}
	}
	if secrets < 20 || values < 20 || notes < 2 {
		t.Errorf("only %d secrets, %d values, %d annotations were seen", secrets, values, notes)
	}
}
