// Package leangob implements the wire format of encoding/gob without its type tables. In a short-lived process, those
// cost more than the call itself. It writes flat structs, and reads any value into maps and lists.
//
// Source: the documentation of encoding/gob, "Encoding Details".
package leangob

import "math/bits"

// Field is a field of a struct: a string, []byte or int64.
type Field struct {
	Name  string
	Value any
}

// These are the IDs of gob's own types, and the first ID of others.
const (
	typeBool = 1 + iota
	typeInt
	typeUint
	typeFloat
	typeBytes
	typeString
	typeComplex
	typeInterface

	typeWire       = 16
	typeArray      = 17
	typeCommon     = 18
	typeSlice      = 19
	typeStruct     = 20
	typeField      = 21
	typeFieldSlice = 22
	typeMap        = 23
	typeOpaque     = 24 // a type that encodes itself

	firstType = 64
)

// AppendStruct appends a struct to a stream: the definition of its type, and its value. The type's ID must be above 64
// and new to the stream.
func AppendStruct(b []byte, number int, name string, fields []Field) []byte {
	var def []byte
	def = appendInt(def, int64(-number))
	def = append(def, 3) // wireType: the third field, StructT
	def = append(def, 1) // structType: the first field, its name and number
	def = appendString(append(def, 1), name)
	def = appendInt(append(def, 1), int64(number))
	def = append(def, 0)
	def = appendUint(append(def, 1), uint64(len(fields)))
	for _, f := range fields {
		def = appendString(append(def, 1), f.Name)
		def = appendInt(append(def, 1), kindOf(f.Value))
		def = append(def, 0)
	}
	def = append(def, 0, 0)

	value := appendInt(nil, int64(number))
	last := -1
	for i, f := range fields {
		if !zero(f.Value) {
			value = appendUint(value, uint64(i-last))
			value = appendValue(value, f.Value)
			last = i
		}
	}
	value = append(value, 0)

	b = append(appendUint(b, uint64(len(def))), def...)
	return append(appendUint(b, uint64(len(value))), value...)
}

func kindOf(v any) int64 {
	switch v.(type) {
	case []byte:
		return typeBytes
	case int64:
		return typeInt
	}
	return typeString
}

// Zero values are not written.
func zero(v any) bool {
	switch v := v.(type) {
	case []byte:
		return len(v) == 0
	case int64:
		return v == 0
	case string:
		return v == ""
	}
	return true
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case []byte:
		return append(appendUint(b, uint64(len(v))), v...)
	case int64:
		return appendInt(b, v)
	case string:
		return appendString(b, v)
	}
	return b
}

func appendString(b []byte, s string) []byte { return append(appendUint(b, uint64(len(s))), s...) }

// appendInt appends a signed number, whose sign is in the lowest bit.
func appendInt(b []byte, v int64) []byte {
	if v < 0 {
		return appendUint(b, uint64(^v<<1)|1)
	}
	return appendUint(b, uint64(v)<<1)
}

// appendUint appends a number below 128 as one byte. Other numbers are the negated byte count, and the bytes in
// big-endian order.
func appendUint(b []byte, v uint64) []byte {
	if v < 128 {
		return append(b, byte(v))
	}
	n := (bits.Len64(v) + 7) / 8
	b = append(b, byte(-n))
	for i := n - 1; i >= 0; i-- {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}
