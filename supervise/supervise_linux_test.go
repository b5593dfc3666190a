package supervise

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The clock agrees with the kernel's time since the start of the machine, sleep included.
func TestClock(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Skip(err)
	}
	up, err := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	if got := Now().Sub(0).Seconds(); got < up-1 || got > up+10 {
		t.Errorf("%f seconds, /proc/uptime says %f", got, up)
	}
	begin, real := Now(), time.Now()
	time.Sleep(20 * time.Millisecond)
	took, want := Now().Sub(begin), time.Since(real)
	if took < 20*time.Millisecond || took > want+time.Second {
		t.Errorf("20 ms took %s", took)
	}
}

// startFamily runs a script in a group of its own and returns the group, and the number
// that the script prints.
func startFamily(t *testing.T, script string) (group, printed int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group = cmd.Process.Pid
	t.Cleanup(func() {
		_ = unix.Kill(-group, unix.SIGKILL) // it may be empty
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if printed, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	return group, printed
}

// What belongs to a group is found in other groups too, is remembered when its parent is
// gone, and is not mixed up with a process that has got its number since.
func TestFamily(t *testing.T) {
	t.Parallel()
	// The leader, as the guard is, does not count itself.
	group, far := startFamily(t, `sh -c 'setsid sh -c "sleep 60 & echo \$\$; wait" & wait' & wait`)
	f := familyOf(group)
	if _, in := f[far]; !in || len(f) < 3 {
		t.Fatalf("%d is not in %v", far, f)
	}
	if _, in := f[group]; in {
		t.Error("the leader is in it")
	}
	if f.empty(group) {
		t.Error("empty")
	}
	for pid := range f {
		if pid != far {
			continue
		}
		reused := family{pid: strings.Repeat("0", 20)} // an older process of that number
		if alive := reused.alive(); len(alive) != 0 {
			t.Errorf("%v is taken for another one", alive)
		}
	}
	// Its parents end; it is still known.
	_ = unix.Kill(-group, unix.SIGTERM)
	for begin := time.Now(); len(familyOf(group)) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatal(familyOf(group))
		}
	}
	if f.empty(group) {
		t.Fatal("what has another group is gone too")
	}
	f.kill(group)
	for begin := time.Now(); !f.empty(group); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Fatal(f.alive())
		}
	}
}
