package kv

import (
	"fmt"
	"io"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/inspect/keyspace"
)

// decodedAnswer is the simple form with --decode: key and value on a line each,
// the value as compact JSON where it decodes.
type decodedAnswer struct {
	simpleAnswer
	env      *cli.Env
	d        *cli.Decoding
	keysOnly bool
}

func newDecodedAnswer(w io.Writer, o *getOptions, d *cli.Decoding) *decodedAnswer {
	return &decodedAnswer{simpleAnswer: simpleAnswer{w: w, valueOnly: o.valueOnly, countOnly: o.countOnly}, env: o.env, d: d, keysOnly: o.keysOnly}
}

func (a *decodedAnswer) record(r keyspace.Record) error {
	if !a.keysOnly {
		v := a.d.Value(r)
		if v.Problem != "" {
			a.env.Warn("%s: %s", r.Key, v.Problem)
		}
		text := v.Bytes
		if text == nil {
			text = []byte(v.String())
		}
		r.Value = text
	}
	return a.simpleAnswer.record(r)
}

// fillDecoded sets what the value decodes to.
func fillDecoded(d *cli.Decoding) func(keyspace.Record, *recordView) {
	return func(r keyspace.Record, v *recordView) {
		x := d.Value(r)
		v.Encoding, v.Encryption, v.Problem = x.Encoding, x.Encryption, x.Problem
		v.Object, v.Value, v.ValueBase64 = x.Object, x.Text, x.Bytes
		if x.Object == nil && x.Text == nil && x.Bytes == nil {
			s := fmt.Sprint(x)
			v.Value = &s
		}
	}
}
