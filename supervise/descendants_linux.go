package supervise

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// process is what the kernel's table says of one.
type process struct{ pid, parent, group int }

// processes reads the kernel's table of processes; ended ones are left out.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		// pid (name) state parent group …; a name may hold anything
		f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
		if len(f) < 3 || f[0][0] == 'Z' || f[0][0] == 'X' {
			continue
		}
		p := process{pid: pid}
		if p.parent, err = strconv.Atoi(string(f[1])); err != nil {
			continue
		}
		if p.group, err = strconv.Atoi(string(f[2])); err != nil {
			continue
		}
		all = append(all, p)
	}
	return all
}

// family returns the members of a group but its leader, and the descendants of all of
// these.
func family(all []process, group int) map[int]bool {
	in := map[int]bool{}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !in[p.pid] && p.pid != group && (p.group == group || in[p.parent]) {
				in[p.pid], grown = true, true
			}
		}
	}
	return in
}

// killDescendants kills the members of a group but its leader and their descendants,
// until none is left. A process that has given up its parents, as daemons do, is not found.
func killDescendants(group int) {
	for range 10 {
		in := family(processes(), group)
		if len(in) == 0 {
			return
		}
		for pid := range in {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
	}
}

// groupEmpty tells whether nobody but the leader is in a group.
func groupEmpty(group int) bool { return len(family(processes(), group)) == 0 }
