package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/internal/yamlerr"
)

// InvalidError reports a configuration that is not valid.
type InvalidError struct{ err error }

func (e *InvalidError) Error() string { return e.err.Error() }

// Unwrap returns the problems.
func (e *InvalidError) Unwrap() error { return e.err }

func invalid(err error) error {
	if err == nil {
		return nil
	}
	return &InvalidError{err}
}

// Parse reads YAML or JSON into a value by the names of its JSON form. It rejects unknown keys. The *InvalidError lists
// every problem with its line, its column and the values that are allowed.
func Parse(file string, raw []byte, into any) error {
	_, err := parse(file, raw, into)
	return err
}

// parse also returns the document, which is empty for an empty file.
func parse(file string, raw []byte, into any) (*yaml.Node, error) {
	var doc, more yaml.Node
	docs := yaml.NewDecoder(bytes.NewReader(raw))
	err := docs.Decode(&doc)
	for err == nil && isNull(&more) {
		more = yaml.Node{}
		err = docs.Decode(&more)
	}
	switch {
	case err == nil:
		return nil, invalid(at(file, &more, "", errors.New("a second YAML document begins here: want only one")))
	case !errors.Is(err, io.EOF):
		return nil, invalid(yamlerr.Explain(file, raw, err))
	}
	return &doc, decodeNode(file, raw, &doc, into)
}

// isNull reports whether a document is empty, as after a last "---".
func isNull(doc *yaml.Node) bool { return len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" }

// decodeNode decodes a document into a value, after it has verified every type.
func decodeNode(file string, raw []byte, doc *yaml.Node, into any) error {
	var tree any
	if err := doc.Decode(&tree); err != nil {
		return invalid(yamlerr.Explain(file, raw, err))
	}
	if tree == nil {
		return nil // empty file
	}
	if err := shapeOf(file, doc, into); err != nil {
		return invalid(err)
	}
	asJSON, err := json.Marshal(tree)
	if err != nil {
		return invalid(inFile(file, err))
	}
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.DisallowUnknownFields()
	return invalid(inFile(file, d.Decode(into)))
}

// namedNetwork is a network as "fairlead network show" prints it.
type namedNetwork struct {
	Name string `json:"name,omitempty"`
	cluster.Network
}

// ParseNetworks reads the networks of a file, one in each YAML document. A document without a name gets the given name,
// and every name must be the given one unless that is "".
func ParseNetworks(file string, raw []byte, name string) (all []*cluster.Network, err error) {
	docs := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var doc yaml.Node
		err := docs.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, invalid(yamlerr.Explain(file, raw, err))
		}
		if isNull(&doc) {
			continue
		}
		var n namedNetwork
		if err := decodeNode(file, raw, &doc, &n); err != nil {
			return nil, err
		}
		switch {
		case n.Name == "" && name == "":
			return nil, invalid(at(file, &doc, "", errors.New(`the network has no name: add "name: NAME", or give the name as an argument`)))
		case n.Name == "":
			n.Name = name
		case name != "" && n.Name != name:
			return nil, invalid(at(file, &doc, "name", fmt.Errorf("name is %q: the command line says %q", n.Name, name)))
		}
		n.Network.Name = n.Name
		if err := n.Network.Check(); err != nil {
			return nil, invalid(locate(file, &doc, "", err))
		}
		all = append(all, &n.Network)
	}
	if len(all) == 0 {
		return nil, invalid(inFile(file, errors.New("the file is empty: want a network")))
	}
	return all, nil
}

// NetworkDocument returns a network in the form that ParseNetworks reads.
func NetworkDocument(n *cluster.Network) any { return namedNetwork{n.Name, *n} }

// locate adds the file, line and column to each *cluster.FieldError of a joined error. Prefix is the path of the network in
// the document.
func locate(file string, doc *yaml.Node, prefix string, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, locate(file, doc, prefix, e))
		}
		return errors.Join(all...)
	}
	if e, ok := errors.AsType[*cluster.FieldError](err); ok {
		return at(file, doc, strings.TrimPrefix(prefix+"."+e.Field, "."), err)
	}
	return err
}

// at adds the position of a key, or of its closest parent that exists.
func at(file string, doc *yaml.Node, key string, err error) error {
	n, _ := closest(doc, key)
	if n.Line == 0 {
		return inFile(file, err)
	}
	return fmt.Errorf("%s%d:%d: %w", strings.TrimPrefix(file+":", ":"), n.Line, n.Column, err)
}

// closest returns the value of a key, or else of its closest parent that exists.
func closest(doc *yaml.Node, key string) (n *yaml.Node, exact bool) {
	n = doc
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	for _, step := range regexp.MustCompile(`[^.\[\]]+`).FindAllString(key, -1) {
		next := child(n, step)
		if next == nil {
			return n, false
		}
		n = next
	}
	return n, true
}

// isEmptyMapping reports whether a key's value is {}.
func isEmptyMapping(doc *yaml.Node, key string) bool {
	n, exact := closest(doc, key)
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return exact && n.Kind == yaml.MappingNode && len(n.Content) == 0
}

// child returns the value of a key of a mapping, or an element of a list.
func child(n *yaml.Node, step string) *yaml.Node {
	switch n.Kind {
	case yaml.AliasNode:
		return child(n.Alias, step)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if strings.EqualFold(n.Content[i].Value, step) {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i < len(n.Content) {
			return n.Content[i]
		}
	}
	return nil
}
