package cli

import (
	"bytes"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// Progress shows on a terminal only, only after a second, and leaves nothing.
func TestProgress(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	var b bytes.Buffer
	e := NewEnv("x", nil, &b, output.NewTerminal(&b), func(string) string { return "" })
	e.Now = func() time.Time { return now }
	p := e.Progress("keys\x1bread")
	p.Set(10, 0)
	if b.Len() > 0 {
		t.Errorf("drawn at once: %q", b.String())
	}
	now = now.Add(1100 * time.Millisecond)
	p.Set(20, 0)
	p.Set(21, 0) // too soon for another
	now = now.Add(time.Second)
	p.Set(50, 200)
	p.Done()
	p.Done()
	if want := "\r\x1b[K" + `keys\x1bread: 20` + "\r\x1b[K" + `keys\x1bread: 50 of 200 (25 %)` + "\r\x1b[K"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	e.Stderr = &b
	if p := e.Progress("x"); p != nil {
		t.Error("progress into a pipe")
	}
	var none *Progress
	none.Set(1, 2)
	none.Done()
}

func TestAge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 5 * time.Second: "5s", 119 * time.Second: "119s", 125 * time.Second: "2m5s", 10 * time.Minute: "10m", 179 * time.Minute: "179m",
		3*time.Hour + time.Minute: "3h1m", 9 * time.Hour: "9h", 47 * time.Hour: "47h", 50 * time.Hour: "2d2h", 30 * 24 * time.Hour: "30d", 3 * 365 * 24 * time.Hour: "3y", 20 * 365 * 24 * time.Hour: "20y",
	} {
		if got := Age(now, now.Add(-d).Format(time.RFC3339)); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
	if Age(now, "yesterday") != "" {
		t.Error("an age for no time")
	}
}

// A password never shows, whatever route it came by.
func TestDebugHidesSecrets(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	e := NewEnv("x", nil, &b, &b, func(string) string { return "" })
	e.tellSettings(settingsWithSecrets())
	for _, s := range []string{"hunter2", "tok.en"} {
		if strings.Contains(b.String(), s) {
			t.Errorf("%q shows in %s", s, b.String())
		}
	}
	if !strings.Contains(b.String(), "not shown") || !strings.Contains(b.String(), `user="root"`) {
		t.Error(b.String())
	}
}

func settingsWithSecrets() *config.Settings {
	return &config.Settings{Endpoints: []string{"e:1"}, User: "root:hunter2", AuthToken: "tok.en"}
}

// With -w json and jsonl what goes to stderr is an object a line, under our own name.
func TestMessages(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"json":  `{"warning":"a <b>\n\u001b[1m"}` + "\n" + `{"damage":"page 3"}` + "\n" + `{"note":"saved"}` + "\n",
		"jsonl": `{"warning":"a <b>\n\u001b[1m"}` + "\n" + `{"damage":"page 3"}` + "\n" + `{"note":"saved"}` + "\n",
		"table": `warning: a <b>\n\x1b[1m` + "\ndamage: page 3\nsaved\n",
		"":      `warning: a <b>\n\x1b[1m` + "\ndamage: page 3\nsaved\n",
	} {
		for _, name := range []string{"etcdctl-plus", "etcdctl"} {
			var b bytes.Buffer
			e := NewEnv(name, nil, &b, &b, func(string) string { return "" })
			e.settings = &config.Settings{WriteOut: format}
			e.Warn("a %s", "<b>\n\x1b[1m")
			e.Damage("page %d", 3)
			e.Say("saved")
			if name == "etcdctl" {
				want = `warning: a <b>\n\x1b[1m` + "\ndamage: page 3\nsaved\n"
			}
			if b.String() != want {
				t.Errorf("%s -w %q: %q, want %q", name, format, b.String(), want)
			}
		}
	}
}

// What keeps a unit from writing to another folder than its own is said.
func TestReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	d := Describe(&fs.PathError{Op: "mkdirat", Path: "locks", Err: syscall.EROFS})
	if d.Code != IO || !strings.Contains(d.Hint, "ReadWritePaths=") {
		t.Errorf("%+v", d)
	}
}
