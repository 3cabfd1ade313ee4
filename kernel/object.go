package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/leanjson"
)

// Side tells in which namespace an object lives.
type Side uint8

const (
	Host      Side = iota // the namespace the plugin runs in
	Container             // the attachment's namespace
)

func (s Side) String() string {
	if s == Container {
		return "container"
	}
	return "host"
}

// Object is a thing that should exist in the kernel.
//
// String is the object in one line, in the words of ip(8), nft(8) or sysctl(8).
// Shared objects are ensured by Apply and left alone by Remove and by an undo.
type Object interface {
	String() string
	Side() Side
	Shared() bool

	kind() string                   // its name in a record
	ensure(*Engine) error           // does or queues what makes it so
	diff(*Engine) ([]string, error) // what differs, in words; absence is an error
	remove(*Engine) error           // absence is os.ErrNotExist
	links() []linkName              // links that it makes
	on() linkName                   // the link that it lives and dies with, or zero
}

type linkName struct {
	side Side
	name string
}

// base answers for objects that make no link and live on none.
type base struct{}

func (base) links() []linkName { return nil }
func (base) on() linkName      { return linkName{} }

// prototypes is one empty object of every kind.
func prototypes() []Object {
	return []Object{
		&Bridge{}, &Veth{}, &StackedLink{}, &Dummy{}, &Tap{}, &Up{}, &Port{}, &PortVLAN{}, &HostDevice{}, &Addr{}, &Route{}, &Rule{}, &Neigh{}, &FDB{},
		&AnnounceAddresses{}, &WaitForCarrier{}, &Sysctl{}, &NFT{}, &Element{}, &ConntrackFlows{}, &Command{}, &LinkAttrs{},
		&IFB{}, &Qdisc{}, &TCFilter{}, &AbsentRoute{}, &ForwardRule{}, &ZoneSource{},
		&VRF{}, &VRFMember{}, &VXLAN{}, &IPIP{}, &WireGuard{}, &OVSBridge{}, &OVSTunnel{}, &OVSPort{}, &ReferenceRules{}, &NetnsVeth{}, &ExpectedLink{},
	}
}

// kinds are the types of objects by the names of their kinds in a record.
func kinds() map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for _, o := range prototypes() {
		out[o.kind()] = reflect.TypeOf(o).Elem()
	}
	return out
}

// Objects is a list in order of creation that can be written and read as JSON.
type Objects []Object

type tagged struct {
	Kind   string          `json:"kind"`
	Object json.RawMessage `json:"object"`
}

// AppendJSON writes each object with its kind.
func (l Objects) AppendJSON(b []byte) (_ []byte, err error) {
	b = append(b, '[')
	for i, o := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"kind":"`+o.kind()+`","object":`...)
		if b, err = leanjson.Append(b, o); err != nil {
			return b, fmt.Errorf("encode %s: %w", o, err)
		}
		b = append(b, '}')
	}
	return append(b, ']'), nil
}

// MarshalJSON is AppendJSON for encoding/json.
func (l Objects) MarshalJSON() ([]byte, error) { return l.AppendJSON(nil) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Objects) UnmarshalJSON(data []byte) error {
	var list []tagged
	if err := decode(data, &list); err != nil {
		return err
	}
	types := kinds()
	for _, t := range list {
		typ := types[t.Kind]
		if typ == nil {
			return fmt.Errorf("unknown kind of object %q", t.Kind)
		}
		o := reflect.New(typ).Interface().(Object)
		if err := decode(t.Object, o); err != nil {
			return fmt.Errorf("object of kind %s: %w", t.Kind, err)
		}
		*l = append(*l, o)
	}
	return nil
}

// decode reads valid JSON as encoding/json does, which it leaves to do what is
// rare: the tables of each type that it builds first are used once here.
func decode(data []byte, v any) error {
	if err := rawjson.Decode(data, v); errors.Is(err, rawjson.ErrElse) {
		return json.Unmarshal(data, v)
	} else {
		return err
	}
}

// Kind is the name of an object's kind, as a record has it.
func Kind(o Object) string { return o.kind() }
