package kernel

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/internal/leanjson"
)

// Side is the namespace that an object lives in.
type Side uint8

const (
	Host      Side = iota // the namespace that the plugin runs in
	Container             // the attachment's namespace
)

func (s Side) String() string {
	if s == Container {
		return "container"
	}
	return "host"
}

// Object is something that should exist in the kernel.
//
// String returns the object as one line of ip(8), nft(8), tc(8) or sysctl(8). Apply creates shared objects; Remove and
// Undo leave them alone.
type Object interface {
	String() string
	Side() Side
	Shared() bool

	kind() string                   // name of the type in a record
	ensure(*Engine) error           // creates or updates the object, or queues that
	diff(*Engine) ([]string, error) // what differs, as text; os.ErrNotExist if the object is missing
	remove(*Engine) error           // os.ErrNotExist if the object is missing
	links() []linkName              // links that the object creates
	on() linkName                   // the link that the object goes away with, or zero
}

type linkName struct {
	side Side
	name string
}

// base is embedded by every object. It answers for objects that neither create a link nor belong to one.
type base struct{}

func (base) links() []linkName { return nil }
func (base) on() linkName      { return linkName{} }

// prototypes returns one empty object of every kind.
var prototypes = sync.OnceValue(func() []Object {
	return []Object{
		&Bridge{}, &Veth{}, &StackedLink{}, &Dummy{}, &Tap{}, &Up{}, &Port{}, &PortVLAN{}, &HostDevice{}, &Addr{}, &Route{}, &Rule{}, &Neigh{}, &FDB{},
		&Sysctl{}, &NFT{}, &Element{}, &ConntrackFlows{}, &Command{}, &LinkAttrs{},
		&IFB{}, &Qdisc{}, &TCFilter{}, &AbsentRoute{}, &ForwardRule{}, &ZoneSource{},
		&VRF{}, &VRFMember{}, &VXLAN{}, &IPIP{}, &WireGuard{}, &OVSBridge{}, &OVSTunnel{}, &OVSPort{}, &ReferenceRules{}, &NetnsVeth{}, &ExpectedLink{},
	}
})

// prototype returns the empty object of a kind, or nil.
func prototype(kind string) Object {
	for _, o := range prototypes() {
		if o.kind() == kind {
			return o
		}
	}
	return nil
}

// Objects is a list in order of creation. It can be written and read as JSON.
type Objects []Object

type tagged struct {
	Kind   string       `json:"kind"`
	Object rawjson.Part `json:"object"`
}

// AppendJSON appends the list as JSON. Each object is tagged with its kind.
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

// MarshalJSON is like AppendJSON, for encoding/json.
func (l Objects) MarshalJSON() ([]byte, error) { return l.AppendJSON(nil) }

// UnmarshalJSON reads the output of MarshalJSON.
func (l *Objects) UnmarshalJSON(data []byte) error {
	return l.read(data, func(Object) bool { return true })
}

// ReadChanges reads, from the output of MarshalJSON, only the objects that may change what earlier objects of the
// attachment set.
func ReadChanges(data []byte) (l Objects, err error) {
	err = l.read(data, func(o Object) bool {
		_, ok := o.(changer)
		return ok
	})
	return l, err
}

// read appends the objects whose kind is wanted; want gets an empty object of the kind.
func (l *Objects) read(data []byte, want func(Object) bool) error {
	var list []tagged
	if err := rawjson.Unmarshal(data, &list); err != nil {
		return err
	}
	for _, t := range list {
		if isFormerKind(t.Kind) {
			continue
		}
		empty := prototype(t.Kind)
		if empty == nil {
			return fmt.Errorf("unknown kind of object %q", t.Kind)
		}
		if !want(empty) {
			continue
		}
		o := reflect.New(reflect.TypeOf(empty).Elem()).Interface().(Object)
		if err := rawjson.Unmarshal(t.Object, o); err != nil {
			return fmt.Errorf("object of kind %s: %w", t.Kind, err)
		}
		*l = append(*l, o)
	}
	return nil
}

// isFormerKind reports whether earlier versions recorded objects of a kind that is now a phase of Apply.
func isFormerKind(kind string) bool { return kind == "announced" || kind == "carried" }

// Kind returns the kind of an object as a record names it.
func Kind(o Object) string { return o.kind() }
