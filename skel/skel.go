package skel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/rawjson"
	"github.com/fairlead/fairlead/cni/wire"
)

// PluginMain is the main function of a plugin. It does not return.
func PluginMain(p Plugin) {
	os.Exit(Run(context.Background(), p, os.Getenv, os.Stdin, stdout(), stderr()))
}

// PluginMainFuncs is PluginMain for a plugin with the name of its program.
func PluginMainFuncs(funcs CNIFuncs, versions []string, about string) {
	name := filepath.Base(os.Args[0])
	PluginMain(Plugin{Name: name, About: about, Versions: versions, Funcs: funcs})
}

// Run serves one call of a plugin, from the environment and standard input. It returns the exit status: 0, or 1 with an
// error as JSON on stdout. Without CNI_COMMAND it describes the plugin on stderr.
func Run(ctx context.Context, p Plugin, env func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	if p.Versions == nil {
		p.Versions = cni.Versions()
	}
	command := env("CNI_COMMAND")
	if command == "" {
		about(stderr, p)
		return 0
	}
	c := call{plugin: p, command: command}
	out, err := c.answer(ctx, env, stdin)
	if err != nil {
		return c.fail(err, stdout, stderr)
	}
	if _, err := stdout.Write(out); err != nil {
		c.undeliverable(ctx, err, stderr)
		return 1
	}
	return 0
}

// Serve serves one call in the calling process. It returns what Run would print. The error is a *cni.Error without a
// cause.
func Serve(ctx context.Context, p Plugin, env func(string) string, stdin []byte) ([]byte, error) {
	if p.Versions == nil {
		p.Versions = cni.Versions()
	}
	c := call{plugin: p, command: env("CNI_COMMAND")}
	return c.answer(ctx, env, bytes.NewReader(stdin))
}

// call is one request in progress.
type call struct {
	plugin  Plugin
	command string
	args    CmdArgs
	conf    conf
}

// answer is serve with every error as a protocol error.
func (c *call) answer(ctx context.Context, env func(string) string, stdin io.Reader) ([]byte, error) {
	out, err := c.serve(ctx, env, stdin)
	if err == nil {
		return out, nil
	}
	e := protocolError(err)
	return nil, &cni.Error{CNIVersion: c.conf.cniVersion, Code: e.Code, Msg: e.Msg, Details: e.Details}
}

// serve returns what to write to stdout.
func (c *call) serve(ctx context.Context, env func(string) string, stdin io.Reader) ([]byte, error) {
	if c.command == "VERSION" {
		// Some runtimes send a configuration with VERSION, others nothing, and a person may have no end of input to send.
		return wire.EncodeVersions(cni.Current, c.plugin.Versions), nil
	}
	v, ok := verbs()[c.command]
	if !ok {
		return nil, cni.Errorf(cni.CodeInvalidEnvironment, "unknown CNI_COMMAND: %s: want ADD, DEL, CHECK, GC, STATUS or VERSION", c.command)
	}
	c.args = argsFromEnv(env)
	envErr := checkEnv(&c.args, c.command, v)
	// Read the configuration even after an error: the error needs its version.
	if err := c.readConf(stdin); envErr != nil || err != nil {
		return nil, first(envErr, err)
	}
	if err := c.check(v); err != nil {
		return nil, err
	}
	return c.dispatch(ctx)
}

// check verifies that the environment and the configuration fit together.
func (c *call) check(v verb) error {
	if err := cni.ValidateNetworkName(c.conf.name); err != nil {
		return err
	}
	if err := checkVersion(c.plugin.Versions, c.conf.cniVersion, c.command, v.since); err != nil {
		return err
	}
	if c.command == "GC" {
		if err := c.readValidAttachments(); err != nil {
			return err
		}
	}
	return checkNetns(&c.args, v, c.plugin.AnyNetns)
}

// validKey is the key with the attachments that GC keeps. An early text of the specification had another name for it.
const (
	validKey      = "cni.dev/valid-attachments"
	earlyValidKey = "cni.dev/attachments"
)

// readValidAttachments rejects a list that GC cannot read, because GC deletes what the list lacks. null is an empty
// list, which libcni sends if there are no attachments.
func (c *call) readValidAttachments() error {
	conf, err := rawjson.ParseObject(c.args.StdinData)
	if err != nil {
		return err
	}
	if early, ok := conf.Get(earlyValidKey); ok {
		if _, ok := conf.Get(validKey); !ok {
			conf.Set(validKey, early)
			c.args.StdinData = conf.Bytes()
		}
	}
	var list struct {
		Valid []cni.Attachment `json:"cni.dev/valid-attachments"`
	}
	if err := cni.Decode(c.args.StdinData, &list); err != nil {
		return err
	}
	for i, a := range list.Valid {
		if a.ContainerID == "" || a.IfName == "" {
			return cni.Invalid(c.args.StdinData, fmt.Sprintf("%s[%d]", validKey, i), "want an object with containerID and ifname")
		}
	}
	return nil
}

// dispatch calls the plugin's function. It turns a panic into an error.
func (c *call) dispatch(ctx context.Context) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = cni.Errorf(cni.CodeGeneric, "%s: plugin %s panicked: %v", c.command, c.plugin.Name, p).WithDetails(string(debug.Stack()))
		}
		if e, ok := err.(*cni.Error); ok && e == nil {
			err = cni.Errorf(cni.CodeGeneric, "%s: plugin %s returned an error that is a nil *cni.Error: it has to return nil", c.command, c.plugin.Name)
		}
	}()
	f := c.plugin.Funcs
	switch c.command {
	case "ADD":
		return c.add(ctx)
	case "DEL":
		return nil, c.run(ctx, f.Del)
	case "CHECK":
		return nil, c.run(ctx, f.Check)
	case "GC":
		return nil, c.runOptional(ctx, f.GC)
	default:
		return nil, c.runOptional(ctx, f.Status)
	}
}

func (c *call) add(ctx context.Context) ([]byte, error) {
	if c.plugin.Funcs.Add == nil {
		return nil, c.notServed()
	}
	result, err := c.plugin.Funcs.Add(ctx, &c.args)
	if err != nil {
		return nil, err
	}
	out, err := wire.Encode(result, c.conf.cniVersion)
	if err != nil {
		return nil, errors.Join(err, c.undo(ctx))
	}
	return append(out, '\n'), nil
}

func (c *call) run(ctx context.Context, f func(context.Context, *CmdArgs) error) error {
	if f == nil {
		return c.notServed()
	}
	return f(ctx, &c.args)
}

func (c *call) runOptional(ctx context.Context, f func(context.Context, *CmdArgs) error) error {
	if f == nil {
		return nil
	}
	return f(ctx, &c.args)
}

func (c *call) notServed() error {
	return cni.Errorf(cni.CodeInvalidEnvironment, "plugin %s does not serve CNI_COMMAND=%s", c.plugin.Name, c.command)
}

func (c *call) undeliverable(ctx context.Context, writeErr error, stderr io.Writer) {
	fmt.Fprintf(stderr, "%s: write the answer to stdout: %v\n", c.plugin.Name, writeErr)
	if c.command != "ADD" {
		return
	}
	if err := c.undo(ctx); err != nil {
		fmt.Fprintf(stderr, "%s: undo ADD of %s: %v\n", c.plugin.Name, c.args.ContainerID, err)
	}
}

// undoTime bounds the DEL after a result that could not be delivered.
const undoTime = 30 * time.Second

// undo deletes what was added: a runtime without a result does not know that there is something to delete.
func (c *call) undo(ctx context.Context) error {
	if c.plugin.Funcs.Del == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	del := *c
	del.command = "DEL"
	_, err := del.dispatch(ctx)
	return err
}

func (c *call) fail(failure error, stdout, stderr io.Writer) int {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(failure); err != nil {
		fmt.Fprintf(stderr, "%s: encode error %q: %v\n", c.plugin.Name, failure, err)
		return 1
	}
	if _, err := stdout.Write(b.Bytes()); err != nil {
		fmt.Fprintf(stderr, "%s: write error %q to stdout: %v\n", c.plugin.Name, failure, err)
	}
	return 1
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
