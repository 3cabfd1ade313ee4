package wire

import (
	"encoding/json"
	"net/netip"
	"strconv"
)

// encoder appends JSON without reflection, which would take a good part of the few milliseconds that a plugin runs.
type encoder struct {
	buf     []byte
	version string
}

func (e *encoder) open(c byte) {
	e.comma()
	e.buf = append(e.buf, c)
}

func (e *encoder) close(c byte) { e.buf = append(e.buf, c) }

// comma separates a key or an element from the previous one.
func (e *encoder) comma() {
	if n := len(e.buf); n > 0 && e.buf[n-1] != '{' && e.buf[n-1] != '[' && e.buf[n-1] != ':' {
		e.buf = append(e.buf, ',')
	}
}

func (e *encoder) key(k string) {
	e.comma()
	e.buf = append(strconv.AppendQuote(e.buf, k), ':')
}

func (e *encoder) str(k, v string) {
	e.key(k)
	e.buf = appendString(e.buf, v)
}

func (e *encoder) strIf(k, v string) {
	if v != "" {
		e.str(k, v)
	}
}

func (e *encoder) strs(k string, v []string) {
	if len(v) > 0 {
		e.key(k)
		e.array(v)
	}
}

func (e *encoder) array(v []string) {
	e.open('[')
	for _, s := range v {
		e.comma()
		e.buf = appendString(e.buf, s)
	}
	e.close(']')
}

func (e *encoder) num(k string, v int) {
	e.key(k)
	e.buf = strconv.AppendInt(e.buf, int64(v), 10)
}

func (e *encoder) numIf(k string, v int) {
	if v != 0 {
		e.num(k, v)
	}
}

func (e *encoder) ptr(k string, v *int) {
	if v != nil {
		e.num(k, *v)
	}
}

func (e *encoder) addrIf(k string, v netip.Addr) {
	if v.IsValid() {
		e.str(k, v.String())
	}
}

func list[T any](e *encoder, k string, v []T, element func(T)) {
	if len(v) == 0 {
		return
	}
	e.key(k)
	e.open('[')
	for _, x := range v {
		e.open('{')
		element(x)
		e.close('}')
	}
	e.close(']')
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= 0x7F {
			quoted, _ := json.Marshal(s) // a string always marshals
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
