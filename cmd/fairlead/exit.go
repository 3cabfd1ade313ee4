package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/agent/config"
	"github.com/fairlead/fairlead/agent/policy/manifest"
	"github.com/fairlead/fairlead/cni"
)

// The exit codes. docs/commands.md and "fairlead help exit-codes" explain them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInvalid     = 3
	exitWrong       = 4
	exitTryAgain    = cni.CodeTryAgainLater
	exitUnavailable = cni.CodePluginNotAvailable
	exitLimited     = cni.CodeLimitedConnectivity
	exitInterrupted = 130
)

const exitHelp = `  0    success
  1    failure: standard error says what failed, on what, and why
  2    the command line is not valid
  3    a configuration is not valid
  4    something is wrong: doctor or a check found it, repair could not restore it, or would
       restore it with --dry-run
  11   a temporary condition: the same command may work in a moment
  50   status: an ADD would fail now
  51   status: an ADD would fail now, and existing containers may lack connectivity
  130  interrupted; add and pod setup removed what they had created`

var errInterrupted = errors.New("interrupted") // a constant: nothing assigns it

// usageError reports a command line that is not valid.
type usageError struct{ problem, next string }

func (e *usageError) Error() string { return e.problem + "\n" + e.next }

// silentError is a failure that the command has reported already.
type silentError struct{ code int }

func (e silentError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// unavailableError is an error because of which an ADD would fail.
type unavailableError struct{ error }

func (e unavailableError) Unwrap() error { return e.error }

// unavailable gives an answer to "would an ADD work" the exit code 50, unless it has a code of its own.
func unavailable(err error) error {
	if err == nil || exitCode(err) != exitFailed || os.Geteuid() != 0 && isPermission(err) {
		return err
	}
	return unavailableError{err}
}

// isPermission reports whether an error may be due to missing permissions. A plugin's error has only its text.
func isPermission(err error) bool {
	return errors.Is(err, os.ErrPermission) || strings.Contains(err.Error(), syscall.EACCES.Error()) || strings.Contains(err.Error(), syscall.EPERM.Error())
}

// adviseRoot tells a user who is not root to try sudo, unless the error does.
func adviseRoot(err error, uid int) error {
	if uid == 0 || !isPermission(err) || strings.Contains(err.Error(), "sudo") {
		return err
	}
	return fmt.Errorf("%w\nThis needs root: run the same command with sudo", err)
}

// invalidError is about the content of a file that the user named.
type invalidError struct{ error }

func exitCode(err error) int {
	if errors.Is(err, errInterrupted) {
		return exitInterrupted
	}
	if e, ok := errors.AsType[silentError](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[unavailableError](err); ok {
		return exitUnavailable
	}
	if _, ok := errors.AsType[*cni.ConfigError](err); ok {
		return exitInvalid
	}
	if _, ok := errors.AsType[*config.InvalidError](err); ok {
		return exitInvalid
	}
	if _, ok := errors.AsType[*manifest.InvalidError](err); ok {
		return exitInvalid
	}
	if _, ok := errors.AsType[invalidError](err); ok {
		return exitInvalid
	}
	if e, ok := errors.AsType[*cni.Error](err); ok {
		switch e.Code {
		case exitTryAgain, exitUnavailable, exitLimited:
			return int(e.Code)
		}
	}
	return exitFailed
}

// report prints an error: as text, or with --json as JSON.
func (a *app) report(err error) {
	if _, ok := errors.AsType[silentError](err); ok {
		return
	}
	if a.format != formatJSON {
		fmt.Fprintln(a.stderr, "fairlead:", err)
		return
	}
	e := *cni.AsError(err)
	e.CNIVersion = ""
	raw, _ := json.Marshal(map[string]cni.Error{"error": e}) // strings and a number cannot fail
	fmt.Fprintln(a.stderr, string(raw))
}
