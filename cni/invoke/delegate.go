package invoke

import (
	"context"
	"path/filepath"

	"github.com/fairlead/fairlead/cni"
)

// Delegator calls other plugins for a plugin, for the same attachment. Source: specification, section 4.
type Delegator struct {
	Args Args // Command is set by the call
	Exec Exec // nil: processes
}

// Add runs a plugin's ADD.
func (d Delegator) Add(ctx context.Context, plugin string, netconf []byte) (*cni.Result, error) {
	path, args, err := d.prepare("ADD", plugin)
	if err != nil {
		return nil, err
	}
	return ExecPluginWithResult(ctx, path, netconf, args, d.Exec)
}

// Check runs a plugin's CHECK.
func (d Delegator) Check(ctx context.Context, plugin string, netconf []byte) error {
	return d.run(ctx, "CHECK", plugin, netconf)
}

// Del runs a plugin's DEL.
func (d Delegator) Del(ctx context.Context, plugin string, netconf []byte) error {
	return d.run(ctx, "DEL", plugin, netconf)
}

// GC runs a plugin's GC.
func (d Delegator) GC(ctx context.Context, plugin string, netconf []byte) error {
	return d.run(ctx, "GC", plugin, netconf)
}

// Status runs a plugin's STATUS.
func (d Delegator) Status(ctx context.Context, plugin string, netconf []byte) error {
	return d.run(ctx, "STATUS", plugin, netconf)
}

func (d Delegator) run(ctx context.Context, command, plugin string, netconf []byte) error {
	path, args, err := d.prepare(command, plugin)
	if err != nil {
		return err
	}
	return ExecPluginWithoutResult(ctx, path, netconf, args, d.Exec)
}

func (d Delegator) prepare(command, plugin string) (string, *Args, error) {
	args := d.Args
	args.Command = command
	path, err := orDefault(d.Exec).FindInPath(plugin, filepath.SplitList(args.Path))
	return path, &args, err
}

func fromEnv(exec Exec) Delegator { return Delegator{Args: *ArgsFromEnv(), Exec: exec} }

// DelegateAdd runs another plugin's ADD with this process's CNI variables.
func DelegateAdd(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) (*cni.Result, error) {
	return fromEnv(exec).Add(ctx, delegatePlugin, netconf)
}

// DelegateCheck runs another plugin's CHECK with this process's CNI variables.
func DelegateCheck(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) error {
	return fromEnv(exec).Check(ctx, delegatePlugin, netconf)
}

// DelegateDel runs another plugin's DEL with this process's CNI variables.
func DelegateDel(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) error {
	return fromEnv(exec).Del(ctx, delegatePlugin, netconf)
}

// DelegateGC runs another plugin's GC with this process's CNI variables.
func DelegateGC(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) error {
	return fromEnv(exec).GC(ctx, delegatePlugin, netconf)
}

// DelegateStatus runs another plugin's STATUS with this process's CNI variables.
func DelegateStatus(ctx context.Context, delegatePlugin string, netconf []byte, exec Exec) error {
	return fromEnv(exec).Status(ctx, delegatePlugin, netconf)
}
