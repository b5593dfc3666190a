package detect

import (
	"os"
	"path"
	"slices"
	"strings"
)

// unitDirs are where systemd looks for units, the strongest first (systemd.unit(5)).
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// unit is a systemd service.
type unit struct {
	file    string
	command []string
	env     map[string]string
	envFrom map[string]string // file of each variable
	denied  []Problem         // files that could not be read
}

// unit reads a service with its drop-ins and environment files; nil when there is none.
func (t *tree) unit(name string) *unit {
	u := &unit{env: map[string]string{}, envFrom: map[string]string{}}
	var exec string
	var execFile string
	var envFiles []string
	own := map[string]string{}
	readOne := func(file string) bool {
		b, err := t.read(file)
		if err != nil {
			if !gone(err) {
				u.denied = append(u.denied, t.problem(file, err, ""))
			}
			return !gone(err)
		}
		for _, kv := range serviceLines(string(b)) {
			key, val := kv[0], t.specifiers(kv[1], name)
			switch {
			case key == "ExecStart":
				exec, execFile = val, file
			case key == "EnvironmentFile" && val == "":
				envFiles = nil
			case key == "EnvironmentFile":
				envFiles = append(envFiles, strings.TrimPrefix(val, "-"))
			case key == "Environment" && val == "":
				clear(own)
			case key == "Environment":
				for _, w := range words(val, nil) {
					if k, v, ok := strings.Cut(w, "="); ok {
						own[k] = v
						u.envFrom[k] = t.shown(file)
					}
				}
			}
		}
		return true
	}
	for _, dir := range unitDirs {
		if file := path.Join(dir, name+".service"); readOne(file) {
			u.file = file
			break
		}
	}
	if u.file == "" {
		return nil
	}
	for _, file := range t.dropIns(name) {
		readOne(file)
	}
	for k, v := range own {
		u.env[k] = v
	}
	for _, file := range envFiles {
		u.denied = append(u.denied, t.envFile(file, u.env, u.envFrom)...)
	}
	u.command = words(strings.TrimLeft(exec, "@-:+!"), u.env)
	if execFile != "" {
		u.file = execFile
	}
	return u
}

// dropIns returns the *.conf of a unit in the order of their names; of equal names the
// strongest folder has it.
func (t *tree) dropIns(name string) []string {
	byName := map[string]string{}
	for _, dir := range slices.Backward(unitDirs) {
		d := path.Join(dir, name+".service.d")
		files, err := t.list(d)
		if err != nil {
			continue
		}
		for _, f := range files {
			if strings.HasSuffix(f, ".conf") {
				byName[f] = path.Join(d, f)
			}
		}
	}
	var names, out []string
	for f := range byName {
		names = append(names, f)
	}
	slices.Sort(names)
	for _, f := range names {
		out = append(out, byName[f])
	}
	return out
}

// serviceLines returns the members of [Service], lines that go on joined.
func serviceLines(text string) [][2]string {
	var out [][2]string
	section, line := "", ""
	for raw := range strings.SplitSeq(text, "\n") {
		s := strings.TrimSpace(raw)
		if strings.HasPrefix(s, "#") || strings.HasPrefix(s, ";") {
			continue
		}
		if part, more := strings.CutSuffix(s, `\`); more {
			line += part + " "
			continue
		}
		s, line = line+s, ""
		if strings.HasPrefix(s, "[") {
			section = s
			continue
		}
		if k, v, ok := strings.Cut(s, "="); ok && section == "[Service]" {
			out = append(out, [2]string{strings.TrimSpace(k), strings.TrimSpace(v)})
		}
	}
	return out
}

// specifiers replaces those that stand for the unit's name and the host's.
func (t *tree) specifiers(s, name string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	host, err := t.read("/etc/hostname")
	if err != nil {
		host = nil
	}
	return strings.NewReplacer("%%", "%", "%n", name+".service", "%N", name, "%p", name, "%H", strings.TrimSpace(string(host))).Replace(s)
}

// envFile reads an environment file as systemd does. One that is not there is none.
func (t *tree) envFile(file string, env, from map[string]string) []Problem {
	b, err := t.read(file)
	if gone(err) {
		return nil
	}
	if err != nil {
		return []Problem{t.problem(file, err, "")}
	}
	for line := range strings.SplitSeq(strings.ReplaceAll(string(b), "\\\n", " "), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		k, v, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !ok {
			continue
		}
		v = strings.TrimSpace(v)
		if n := len(v); n >= 2 && (v[0] == '"' || v[0] == '\'') && v[n-1] == v[0] {
			v = v[1 : n-1]
		}
		k = strings.TrimSpace(k)
		env[k], from[k] = v, t.shown(file)
	}
	return nil
}

// words splits a command line at blanks, with quotes and backslashes as a shell has
// them. Variables are replaced where env is not nil: $X that is a word of its own becomes
// as many words as it has, anything else stays in its word.
func words(line string, env map[string]string) []string {
	var out []string
	var w strings.Builder
	in, quote, bare := false, byte(0), true
	end := func() {
		if !in {
			return
		}
		s := w.String()
		name, isVar := strings.CutPrefix(s, "$")
		switch {
		case env == nil:
			out = append(out, s)
		case isVar && bare && name != "" && !strings.ContainsAny(name, "{}$/.="):
			out = append(out, strings.Fields(env[name])...)
		default:
			out = append(out, os.Expand(s, func(k string) string { return env[k] }))
		}
		w.Reset()
		in, bare = false, true
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && quote != '\'' && i+1 < len(line):
			i++
			w.WriteByte(line[i])
			in = true
		case quote != 0:
			w.WriteByte(c)
		case c == '"' || c == '\'':
			quote, in, bare = c, true, false
		case c == ' ' || c == '\t' || c == '\n':
			end()
		default:
			w.WriteByte(c)
			in = true
		}
	}
	end()
	return out
}
