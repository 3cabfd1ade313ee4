package invoke

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
)

// RawExec runs plugins as processes.
type RawExec struct {
	Stderr io.Writer // gets what a successful plugin wrote to stderr; nil: discarded
}

const (
	maxStdout = 16 << 20 // bytes of an answer
	maxStderr = 64 << 10 // bytes kept for an error; the rest is discarded

	// childProcs is a plugin's GOMAXPROCS. A Go program starts more slowly with more processors, and a plugin mostly
	// waits for the kernel.
	childProcs = "GOMAXPROCS=2"

	// lingerTime limits the time for which a plugin's child processes may keep its stdout open after the plugin ended.
	lingerTime = 2 * time.Second

	// busyTries bounds the attempts to start a program that is being written. The pauses double and add up to 5
	// seconds.
	busyTries = 9
	busyPause = 10 * time.Millisecond
)

// ExecPlugin runs one plugin. It kills the process when the context ends.
func (e *RawExec) ExecPlugin(ctx context.Context, pluginPath string, stdinData []byte, environ []string) ([]byte, error) {
	environ = setEnv(environ, TraceFrom(ctx).env()...)
	if !slices.ContainsFunc(environ, func(kv string) bool { return name(kv) == "GOMAXPROCS" }) {
		environ = append(environ, childProcs)
	}
	pause := busyPause
	for try := 1; ; try++ {
		p := newProcess(ctx, pluginPath, stdinData, environ)
		err := p.run(ctx)
		if try < busyTries && errors.Is(err, syscall.ETXTBSY) && sleep(ctx, pause) {
			pause *= 2
			continue
		}
		if err == nil && e.Stderr != nil {
			_, _ = e.Stderr.Write(p.stderr.buf.Bytes()) // for people only
		}
		return p.stdout.buf.Bytes(), err
	}
}

// FindInPath is the package's FindInPath.
func (e *RawExec) FindInPath(plugin string, paths []string) (string, error) {
	return FindInPath(plugin, paths)
}

// Decode decodes the answer to VERSION.
func (e *RawExec) Decode(jsonBytes []byte) (PluginInfo, error) {
	current, supported, err := wire.DecodeVersions(jsonBytes)
	return PluginInfo{CNIVersion: current, SupportedVersions: supported}, err
}

type process struct {
	cmd            *exec.Cmd
	stdout, stderr bounded
}

func newProcess(ctx context.Context, path string, stdin []byte, environ []string) *process {
	p := &process{cmd: exec.CommandContext(ctx, path)}
	p.cmd.Env = environ
	p.cmd.Stdin = bytes.NewReader(stdin)
	p.stdout = bounded{max: maxStdout, strict: true}
	p.stderr = bounded{max: maxStderr}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = lingerTime
	return p
}

func (p *process) run(ctx context.Context) error {
	err := p.cmd.Run()
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return nil
	case p.cmd.ProcessState == nil && ctx.Err() == nil:
		return fmt.Errorf("start plugin: %w", err)
	case ctx.Err() != nil:
		return fmt.Errorf("plugin %s was killed: %w", p.cmd.Path, context.Cause(ctx))
	}
	return p.pluginError(err)
}

// pluginError returns the error that a failed plugin printed, or else describes the failure.
func (p *process) pluginError(err error) error {
	out, words := bytes.TrimSpace(p.stdout.buf.Bytes()), strings.TrimSpace(p.stderr.buf.String())
	if p.stdout.over {
		return fmt.Errorf("plugin %s printed more than %d bytes on stdout: %w", p.cmd.Path, maxStdout, err)
	}
	var e cni.Error
	if jsonErr := json.Unmarshal(out, &e); jsonErr == nil && (e.Msg != "" || e.Code != 0) {
		if e.Msg == "" {
			e.Msg = fmt.Sprintf("plugin %s failed with code %d and no message", p.cmd.Path, e.Code)
			if words != "" {
				e.Msg += "; on stderr: " + words
			}
		}
		return &e
	}
	output := ""
	if len(out) > 0 {
		output = fmt.Sprintf("; it printed %.200q, which is not a CNI error", out)
	}
	switch {
	case words != "":
		output += "; on stderr: " + words
	case output == "":
		output = " with no error message"
	}
	return fmt.Errorf("plugin %s failed: %w%s", p.cmd.Path, err, output)
}

// bounded keeps the first max bytes. If strict, more is an error. The buffer is not embedded, because io.Copy would use
// its ReadFrom instead of Write.
type bounded struct {
	buf    bytes.Buffer
	max    int
	strict bool
	over   bool // more than max bytes were written
}

func (b *bounded) Write(data []byte) (int, error) {
	room := b.max - b.buf.Len()
	if len(data) <= room {
		return b.buf.Write(data)
	}
	b.buf.Write(data[:room])
	b.over = true
	if b.strict {
		return room, io.ErrShortWrite
	}
	return len(data), nil
}

// sleep reports whether the time passed before the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
