package auth

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
)

// passwordFlags say where a new password comes from.
type passwordFlags struct {
	interactive bool
	file        string
	stdin       bool
}

func (p *passwordFlags) define(env *cli.Env, f *pflag.FlagSet) {
	f.BoolVar(&p.interactive, "interactive", true, "ask for the password on the terminal; false: read it from standard input")
	if !env.DropIn() {
		f.StringVar(&p.file, "password-file", "", "read the password from this file; a line break at its end is none of it")
		f.BoolVar(&p.stdin, "password-stdin", false, "read the password from standard input")
	}
}

// given tells whether a flag names a source.
func (p *passwordFlags) given() bool { return p.file != "" || p.stdin || !p.interactive }

// read returns the password. It is never part of an error.
func (p *passwordFlags) read(env *cli.Env, user string) (string, error) {
	switch {
	case p.file != "" && (p.stdin || !p.interactive):
		return "", cli.Usagef("--password-file and standard input exclude each other")
	case p.file != "":
		b, err := os.ReadFile(p.file)
		if err != nil {
			return "", fmt.Errorf("read the password: %w", err)
		}
		return checked(env, string(b))
	case p.stdin || !p.interactive:
		b, err := io.ReadAll(io.LimitReader(env.Stdin, 1<<16))
		if err != nil {
			return "", fmt.Errorf("read the password from standard input: %w", err)
		}
		// The whole line: a password may have spaces in it.
		line, _, _ := strings.Cut(string(b), "\n")
		return checked(env, line)
	}
	first, err := ask(env, fmt.Sprintf("Password of %s: ", user))
	if err != nil {
		return "", err
	}
	if first == "" {
		return "", cli.Usagef("empty password")
	}
	second, err := ask(env, fmt.Sprintf("Type password of %s again for confirmation: ", user))
	if err != nil {
		return "", err
	}
	if first != second {
		return "", cli.Usagef("given passwords are different")
	}
	return first, nil
}

// checked leaves the line break away. As etcdctl an empty password is the server's to
// refuse.
func checked(env *cli.Env, s string) (string, error) {
	s = strings.TrimRight(s, "\r\n")
	if s == "" && !env.DropIn() {
		return "", cli.WithHint(cli.Usagef("empty password"), "--no-password makes a user who logs in with a certificate")
	}
	return s, nil
}

// ask reads a password from the terminal. etcdctl's question goes to standard output.
func ask(env *cli.Env, prompt string) (string, error) {
	to := env.Stderr
	if env.DropIn() {
		to = env.Stdout
	}
	fmt.Fprint(to, prompt)
	if err := env.Flush(); err != nil {
		return "", err
	}
	f, ok := env.Stdin.(*os.File)
	if !ok || !env.StdinTTY {
		return "", cli.WithHint(cli.Usagef("failed to ask password: %w", errors.New("standard input is no terminal")), "--interactive=false reads it from standard input")
	}
	b, err := term.ReadPassword(int(f.Fd()))
	fmt.Fprintln(to)
	if err != nil {
		return "", fmt.Errorf("failed to ask password: %w", err)
	}
	return string(b), nil
}
