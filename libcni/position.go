package libcni

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cni"
)

// origin is the file of a plugin's configuration.
type origin struct {
	file string
	data []byte // content of the file
	at   string // path of the configuration in data; "": all of it
}

// locate makes an error about a value of the configuration name the position in the file, if it is there.
func (n network) locate(conf *NetworkConfig, err error) error {
	e, ok := errors.AsType[*cni.Error](err)
	if !ok || conf.origin == nil {
		return err
	}
	req, err2 := n.request(conf) // keys that the runtime adds come after these
	if err2 != nil {
		return err
	}
	line, column, ok := cni.Relocate(e.Details, req.Bytes(), conf.origin.data, conf.origin.at)
	if !ok {
		return err
	}
	found := *e
	found.Details = fmt.Sprintf("at %s:%d:%d", conf.origin.file, line, column)
	return &found
}

// Locate makes a *cni.ConfigError about a request for a plugin of the list name the position in the file instead of that in
// the request, which no person wrote.
func (l *NetworkConfigList) Locate(conf *NetworkConfig, err error) error {
	e, ok := errors.AsType[*cni.ConfigError](err)
	if !ok {
		return err
	}
	details := cni.PositionDetails(e.Line, e.Column)
	e.Line, e.Column = 0, 0
	if conf.origin == nil {
		return err
	}
	req, err2 := l.network().request(conf)
	if err2 != nil {
		return err
	}
	if line, column, ok := cni.Relocate(details, req.Bytes(), conf.origin.data, conf.origin.at); ok {
		e.File, e.Line, e.Column = conf.origin.file, line, column
	}
	return err
}

// fromFile notes the file of the plugins of a list.
func (l *NetworkConfigList) fromFile(file string, data []byte) {
	for i, p := range l.Plugins {
		p.origin = &origin{file, data, fmt.Sprintf("plugins[%d]", i)}
	}
}
