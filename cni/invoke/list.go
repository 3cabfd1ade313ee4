package invoke

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
)

// Member is a plugin of a list to run.
type Member struct {
	Path string
	// Request returns its configuration. prev is what the previous plugin printed; nil for the first one, and for CHECK
	// and DEL.
	Request func(prev []byte) ([]byte, error)
}

// ListExec is an Exec that can run the plugins of a list together, faster than one by one and with the same result.
type ListExec interface {
	Exec
	// ExecList runs args.Command (ADD, CHECK or DEL) for every member; DEL runs from the last to the first. It returns
	// the output of an ADD's last plugin. It stops at the first failure and returns the plugin's position. The other
	// plugins' changes may or may not have been undone.
	ExecList(ctx context.Context, members []Member, args *Args) (out []byte, failed int, err error)
}

// ResultError says that a plugin succeeded but printed a result that cannot be decoded. Its caller runs DEL.
type ResultError struct {
	Path string // of the plugin
	Out  []byte // what it printed
	Err  error
}

func (r *ResultError) Error() string {
	return fmt.Sprintf("%s printed %.200q: %v", r.Path, r.Out, r.Err)
}

// Unwrap returns why the result cannot be decoded, always as a *cni.Error: a position in the result must not be taken for
// one in the configuration.
func (r *ResultError) Unwrap() error {
	if e, ok := errors.AsType[*cni.Error](r.Err); ok {
		return e
	}
	return cni.Errorf(cni.CodeDecodingFailure, "%v", r.Err)
}

// DecodeResult decodes what a plugin printed. A result without a version is in the configuration's, and null is an empty
// result, as in the reference. The error is a *ResultError.
func DecodeResult(version, pluginPath string, out []byte) (*cni.Result, error) {
	if string(bytes.TrimSpace(out)) == "null" {
		out = []byte("{}")
	}
	result, err := wire.Decode(version, out)
	if err != nil {
		return nil, &ResultError{pluginPath, out, err}
	}
	return result, nil
}
