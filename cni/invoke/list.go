package invoke

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
)

// Member is a plugin of a list that is about to run.
type Member struct {
	Path string // its program, from FindInPath
	// Request is its configuration after plugins of which the last printed prev;
	// nil: it is the first, or this is no ADD.
	Request func(prev []byte) ([]byte, error)
}

// ListExec is an Exec that can run the plugins of a list together, faster than
// one after the other and with the same outcome.
type ListExec interface {
	Exec
	// ExecList does args.Command, which is ADD, CHECK or DEL, for every member, of
	// DEL from the last to the first, and returns what the last of an ADD printed.
	// It stops at the first that fails and returns its position; what the others
	// made may or may not be undone by then.
	ExecList(ctx context.Context, members []Member, args *Args) (out []byte, failed int, err error)
}

// DecodeResult reads what a plugin printed; one that names no version is in the
// configuration's.
func DecodeResult(version, pluginPath string, out []byte) (*cni.Result, error) {
	result, err := wire.Decode(version, out)
	if err != nil {
		return nil, fmt.Errorf("%s printed %.200q: %w", pluginPath, out, err)
	}
	return result, nil
}
