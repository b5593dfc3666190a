package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/etcdctl-plus/etcdctl-plus/backup/place"
)

func flagsFor(path string) *Flags {
	f := Define(pflag.NewFlagSet("", pflag.ContinueOnError), false, func(k string) string {
		return map[string]string{"ETCDCTL_PLUS_CONFIG": path}[k]
	})
	return f
}

// Writers that come at once lose nothing, and a reader sees a whole file at any moment.
func TestEditAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "c.yaml")
	const writers, each = 4, 5
	var wg sync.WaitGroup
	done := make(chan struct{})
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				name := fmt.Sprintf("w%d-%d", w, i)
				for {
					_, err := flagsFor(path).Edit(func(c *File) error { return c.Set(name, map[string]any{"endpoints": name + ":1"}, "") })
					if err == nil {
						break
					}
					if !errors.Is(err, place.ErrBusy) {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	for most := 0; ; {
		c, err := flagsFor(path).File()
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Contexts) < most {
			t.Fatalf("%d contexts after %d", len(c.Contexts), most)
		}
		most = len(c.Contexts)
		select {
		case <-done:
			if c, err := flagsFor(path).File(); err != nil || len(c.Contexts) != writers*each {
				t.Errorf("%d contexts, %v", len(c.Contexts), err)
			}
			entries, err := os.ReadDir(filepath.Dir(path))
			if err != nil || len(entries) != 1 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
			return
		default:
		}
	}
}

// What a writer that died left is swept away; a change that fails changes nothing.
func TestEditFailure(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.yaml")
	old := "contexts: {a: {endpoints: 'a:1'}} # mine\n"
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	dead, err := place.Temp(path)
	if err != nil {
		t.Fatal(err)
	}
	dead.Close()
	sorry := errors.New("sorry")
	if _, err := flagsFor(path).Edit(func(c *File) error { return errors.Join(c.Set("b", map[string]any{"hex": true}, ""), sorry) }); !errors.Is(err, sorry) {
		t.Errorf("%v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != old {
		t.Errorf("%q, %v", b, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	// Where nothing can be written, the error says so and what is there stays.
	if runtime.GOOS != "windows" {
		if err := os.Mkdir(path+".lock", 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := flagsFor(path).Edit(func(*File) error { return nil }); err == nil {
			t.Error("a folder in the place of the lock is no lock")
		}
	}
}

// The file of somebody else stays theirs when root writes it.
func TestEditKeepsOwner(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" || os.Getuid() != 0 {
		t.Skip("only root can write the files of others")
	}
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := flagsFor(path).Edit(func(c *File) error { return c.Set("a", map[string]any{"hex": true}, "") }); err != nil {
		t.Fatal(err)
	}
	if uid, gid := owner(t, path); uid != 65534 || gid != 65534 {
		t.Errorf("owner %d:%d", uid, gid)
	}
}

// FuzzEdit: a file that reads is changed as told and nowhere else, and reads again.
func FuzzEdit(f *testing.F) {
	f.Add(contexts, "prod", "x:1")
	f.Add("# only\n", "a.b", "x")
	f.Add("contexts: {a: &x {hex: true}, b: {<<: *x}, c: *x}\n", "b", "y")
	f.Add("contexts:\n  ~: {}\n  1: {}\n", "1", "y")
	f.Add("null", "null", "null")
	f.Add("contexts: {?: &x {hex: true}, b: {<<V *x}, c: *x}", "p", "x")
	f.Add("contexts:\n  C: {hex}\n  D: {55555555}", "p", "x")
	f.Add("contexts: ~\ncurrent-context: ~", "yes", "1e3")
	f.Fuzz(func(t *testing.T, text, name, endpoint string) {
		if len(text) > 4<<10 || strings.ContainsAny(text, "&*") && len(text) > 200 {
			return // aliases are bounded by the YAML reader, and take their time
		}
		before := &File{Path: "f"}
		if before.parse([]byte(text)) != nil {
			return
		}
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		after, err := flagsFor(path).Edit(func(c *File) error {
			if err := c.Set(name, map[string]any{"endpoints": endpoint}, "a comment"); err != nil {
				return err
			}
			return c.Use(name)
		})
		if err != nil {
			if b, rerr := os.ReadFile(path); rerr != nil || string(b) != text {
				t.Fatalf("%v, and the file was changed: %q", err, b)
			}
			return
		}
		x := after.Find(name)
		if x == nil || Text(x.Settings["endpoints"]) != endpoint || !strings.EqualFold(after.Current, name) {
			t.Fatalf("%q in %q: %+v", name, text, after)
		}
		for _, b := range before.Contexts {
			if strings.EqualFold(b.Name, name) {
				continue
			}
			a := after.Find(b.Name)
			if a == nil {
				t.Fatalf("context %q is gone from %q", b.Name, text)
			}
			if strings.ContainsAny(text, "&*") {
				continue // what was changed may be merged into others
			}
			if !maps.EqualFunc(a.Settings, b.Settings, func(x, y any) bool { return fmt.Sprint(x) == fmt.Sprint(y) }) {
				t.Fatalf("context %q: %v, was %v", b.Name, a.Settings, b.Settings)
			}
		}
	})
}
