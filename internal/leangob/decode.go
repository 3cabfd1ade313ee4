package leangob

import (
	"errors"
	"fmt"
	"io"
)

// These limit the input: bytes of a message, elements of a list, depth of a value.
const (
	maxMessage = 16 << 20
	maxDepth   = 64
)

// Decoder decodes the values of a stream.
type Decoder struct {
	r     io.Reader
	types map[int64]*typ
}

// typ is a type that the stream defined.
type typ struct {
	kind      int64 // typeStruct, typeSlice, typeArray, typeMap or typeOpaque
	key, elem int64
	fields    []field
}

type field struct {
	name string
	typ  int64
}

// NewDecoder returns a decoder of a stream. It does not read beyond the requested values.
func NewDecoder(r io.Reader) *Decoder {
	return &Decoder{r: r, types: builtin()}
}

// builtin returns the types that type definitions consist of.
func builtin() map[int64]*typ {
	of := func(fields ...field) *typ { return &typ{kind: typeStruct, fields: fields} }
	common := field{"CommonType", typeCommon}
	return map[int64]*typ{
		typeWire: of(field{"ArrayT", typeArray}, field{"SliceT", typeSlice}, field{"StructT", typeStruct}, field{"MapT", typeMap},
			field{"GobEncoderT", typeOpaque}, field{"BinaryMarshalerT", typeOpaque}, field{"TextMarshalerT", typeOpaque}),
		typeArray:      of(common, field{"Elem", typeInt}, field{"Len", typeInt}),
		typeCommon:     of(field{"Name", typeString}, field{"Id", typeInt}),
		typeSlice:      of(common, field{"Elem", typeInt}),
		typeStruct:     of(common, field{"Field", typeFieldSlice}),
		typeField:      of(field{"Name", typeString}, field{"Id", typeInt}),
		typeFieldSlice: {kind: typeSlice, elem: typeField},
		typeMap:        of(common, field{"Key", typeInt}, field{"Elem", typeInt}),
		typeOpaque:     of(common),
	}
}

// Decode returns the next value as a bool, int64, uint64, float64, []byte or string. A struct, without its zero fields,
// or a map with string keys becomes a map[string]any. A list becomes an []any.
func (d *Decoder) Decode() (any, error) {
	for {
		m, err := d.message()
		if err != nil {
			return nil, err
		}
		number := m.int()
		if number < 0 {
			if err := d.define(-number, m); err != nil {
				return nil, err
			}
			continue
		}
		if t := d.types[number]; t == nil || t.kind != typeStruct {
			m.uint() // a zero in place of a struct's first field
		}
		v := m.value(d.types, number, 0)
		return v, m.end()
	}
}

// message reads one complete message.
func (d *Decoder) message() (*message, error) {
	size, err := readUint(d.r)
	if err != nil {
		return nil, err
	}
	if size > maxMessage {
		return nil, fmt.Errorf("gob: a message of %d bytes is too long", size)
	}
	m := &message{}
	if m.b, err = io.ReadAll(io.LimitReader(d.r, int64(size))); err == nil && uint64(len(m.b)) < size {
		err = io.ErrUnexpectedEOF
	}
	return m, err
}

func readUint(r io.Reader) (v uint64, err error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil || b[0] < 128 {
		return uint64(b[0]), err
	}
	n := -int(int8(b[0]))
	if n > len(b) {
		return 0, errors.New("gob: a number of more than 8 bytes")
	}
	_, err = io.ReadFull(r, b[:n])
	for _, c := range b[:n] {
		v = v<<8 | uint64(c)
	}
	return v, err
}

// define reads the definition of a type.
func (d *Decoder) define(number int64, m *message) error {
	wire, _ := m.value(d.types, typeWire, 0).(map[string]any)
	if err := m.end(); err != nil {
		return err
	}
	if number < firstType || d.types[number] != nil {
		return fmt.Errorf("gob: type %d is defined twice", number)
	}
	for kind, def := range wire {
		t, def := &typ{}, def.(map[string]any)
		t.elem, _ = def["Elem"].(int64)
		t.key, _ = def["Key"].(int64)
		switch kind {
		case "StructT":
			t.kind = typeStruct
			list, _ := def["Field"].([]any)
			for _, f := range list {
				f := f.(map[string]any)
				name, _ := f["Name"].(string)
				number, _ := f["Id"].(int64)
				t.fields = append(t.fields, field{name, number})
			}
		case "SliceT", "ArrayT":
			t.kind = typeSlice
		case "MapT":
			t.kind = typeMap
		default:
			t.kind = typeOpaque
		}
		d.types[number] = t
	}
	return nil
}
