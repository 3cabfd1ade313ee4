package dbus

import (
	"encoding/binary"
	"errors"
)

const (
	kindCall  = 1
	kindError = 3

	fieldPath, fieldInterface, fieldMember, fieldErrorName = 1, 2, 3, 4
	fieldReplySerial, fieldDestination, fieldSignature     = 5, 6, 8
)

// received is a received message.
type received struct {
	kind      byte
	replyTo   uint32
	errorName string
	signature string
	body      []byte
}

// message encodes a method call in little-endian order.
func message(serial uint32, dest, path, iface, method string, args []string) []byte {
	var body, fields []byte
	signature := ""
	for _, a := range args {
		body = appendString(pad(body, 4), a)
		signature += "s"
	}
	field := func(code byte, typ, value string) {
		fields = append(pad(fields, 8), code, 1, typ[0], 0)
		if typ == "g" {
			fields = append(append(append(fields, byte(len(value))), value...), 0)
		} else {
			fields = appendString(fields, value)
		}
	}
	field(fieldPath, "o", path)
	field(fieldInterface, "s", iface)
	field(fieldMember, "s", method)
	field(fieldDestination, "s", dest)
	if signature != "" {
		field(fieldSignature, "g", signature)
	}
	m := []byte{'l', kindCall, 0, 1}
	m = binary.LittleEndian.AppendUint32(m, uint32(len(body)))
	m = binary.LittleEndian.AppendUint32(m, serial)
	m = binary.LittleEndian.AppendUint32(m, uint32(len(fields)))
	return append(pad(append(m, fields...), 8), body...)
}

func pad(b []byte, to int) []byte {
	for len(b)%to != 0 {
		b = append(b, 0)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(append(b, s...), 0)
}

var errMalformed = errors.New("a malformed message")

// parse decodes the message at the start of p. It returns size 0 if the message is incomplete.
func parse(p []byte) (m received, size int, err error) {
	const fixed = 16
	if len(p) < fixed {
		return m, 0, nil
	}
	if p[0] != 'l' { // the bus answers in its machine's byte order, which is also this process's
		return m, 0, errMalformed
	}
	body, fields := int(binary.LittleEndian.Uint32(p[4:])), int(binary.LittleEndian.Uint32(p[12:]))
	if body > maxMessage || fields > maxMessage {
		return m, 0, errMalformed
	}
	start := (fixed + fields + 7) &^ 7
	if len(p) < start+body {
		return m, 0, nil
	}
	m.kind, m.body = p[1], p[start:start+body]
	return m, start + body, m.fields(p[fixed : fixed+fields])
}

// fields decodes the header fields: an array of structures with a code and a variant, aligned to 8 bytes.
func (m *received) fields(p []byte) error {
	for at := 0; at < len(p); at = (at + 7) &^ 7 {
		if len(p)-at < 5 || p[at+1] != 1 {
			return errMalformed
		}
		code, typ := p[at], p[at+2]
		at += 4
		var s string
		var ok bool
		switch typ {
		case 'u':
			if len(p)-at < 4 {
				return errMalformed
			}
			if code == fieldReplySerial {
				m.replyTo = binary.LittleEndian.Uint32(p[at:])
			}
			at += 4
			continue
		case 's', 'o':
			s, at, ok = cutString(p, at, 4)
		case 'g':
			s, at, ok = cutString(p, at, 1)
		}
		if !ok {
			return errMalformed
		}
		switch code {
		case fieldErrorName:
			m.errorName = s
		case fieldSignature:
			m.signature = s
		}
	}
	return nil
}

// cutString reads a string whose length field has that many bytes.
func cutString(p []byte, at, width int) (s string, next int, ok bool) {
	if len(p)-at < width+1 {
		return "", at, false
	}
	n := int(p[at])
	if width == 4 {
		n = int(binary.LittleEndian.Uint32(p[at:]))
	}
	at += width
	if n < 0 || n >= len(p)-at {
		return "", at, false
	}
	return string(p[at : at+n]), at + n + 1, true
}

// text returns the first string of the body, which is the message in an error.
func (m received) text() string {
	if len(m.signature) == 0 || m.signature[0] != 's' {
		return ""
	}
	s, _, _ := cutString(m.body, 0, 4)
	return s
}
