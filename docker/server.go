package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"

	"github.com/fairlead/fairlead/kernel/netns"
)

const (
	contentType = "application/vnd.docker.plugins.v1.1+json"
	maxRequest  = 4 << 20 // bytes
)

// methods are the methods of the protocol, which all run in the host's network namespace.
type methods struct {
	*http.ServeMux
	host *netns.Handle
}

// Handler serves the protocol.
func (d *Driver) Handler() http.Handler {
	mux := methods{http.NewServeMux(), d.host}
	serve(mux, "Plugin.Activate", d.activate)
	d.serveNetworks(mux)
	d.serveAddresses(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusNotFound, failed(fmt.Sprintf("there is no method %s: want Plugin.Activate, or a method of NetworkDriver or IpamDriver", r.URL.Path)))
	})
	return mux
}

func (d *Driver) serveNetworks(mux methods) {
	const driver = "NetworkDriver."
	serve(mux, driver+"GetCapabilities", d.capabilities)
	serve(mux, driver+"CreateNetwork", d.createNetwork)
	serve(mux, driver+"AllocateNetwork", d.allocateNetwork)
	serve(mux, driver+"DeleteNetwork", d.deleteNetwork)
	serve(mux, driver+"FreeNetwork", nothing[networkRequest])
	serve(mux, driver+"CreateEndpoint", d.createEndpoint)
	serve(mux, driver+"EndpointOperInfo", d.endpointInfo)
	serve(mux, driver+"Join", d.join)
	serve(mux, driver+"Leave", d.leave)
	serve(mux, driver+"DeleteEndpoint", d.deleteEndpoint)
	serve(mux, driver+"ProgramExternalConnectivity", d.publish)
	serve(mux, driver+"RevokeExternalConnectivity", d.unpublish)
	// Docker reports other hosts. The agent knows them from its own store.
	serve(mux, driver+"DiscoverNew", nothing[discoveryRequest])
	serve(mux, driver+"DiscoverDelete", nothing[discoveryRequest])
}

func (d *Driver) serveAddresses(mux methods) {
	const driver = "IpamDriver."
	serve(mux, driver+"GetCapabilities", d.addressCapabilities)
	serve(mux, driver+"GetDefaultAddressSpaces", d.addressSpaces)
	serve(mux, driver+"RequestPool", d.requestPool)
	serve(mux, driver+"ReleasePool", d.releasePool)
	serve(mux, driver+"RequestAddress", d.requestAddress)
	serve(mux, driver+"ReleaseAddress", d.releaseAddress)
}

// none is an empty message.
type none struct{}

func nothing[Q any](context.Context, *Q) (any, error) { return none{}, nil }

// serve adds a method. Its errors reach the user of docker after "remote: ".
func serve[Q any](mux methods, method string, do func(context.Context, *Q) (any, error)) {
	mux.HandleFunc("POST /"+method, func(w http.ResponseWriter, r *http.Request) {
		q := new(Q)
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(q)
		if err != nil && !errors.Is(err, io.EOF) { // a method without arguments has no body
			reply(w, http.StatusBadRequest, failed(fmt.Sprintf("%s: the request is not a valid message: %v", method, err)))
			return
		}
		// dockerd gives up after a while, and asks again or cleans up. So a call runs to its end.
		var res any
		err = mux.host.Do(func() (err error) {
			res, err = do(context.WithoutCancel(r.Context()), q)
			return err
		})
		if err != nil {
			reply(w, http.StatusOK, failed(err.Error()))
			return
		}
		reply(w, http.StatusOK, res)
	})
}

func reply(w http.ResponseWriter, status int, message any) {
	raw, err := json.Marshal(message)
	if err != nil { // no message has a value that cannot be encoded
		raw, status = []byte(`{"Err":"encode the response","Error":"encode the response"}`), http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(raw) // the client is gone
}

// validID matches the IDs of networks and endpoints, which become names of files.
var validID = regexp.MustCompile(`^[a-zA-Z0-9]{1,128}$`)

func checkID(key, id string) error {
	if !validID.MatchString(id) {
		return fmt.Errorf("%s %q: want 1 to 128 letters and digits", key, id)
	}
	return nil
}

func (d *Driver) activate(context.Context, *none) (any, error) {
	return map[string][]string{"Implements": {"NetworkDriver", "IpamDriver"}}, nil
}

// capabilities says that each host creates the networks itself, and that their containers reach those of other hosts.
// So the hosts of a swarm tell each other the names of the containers.
func (d *Driver) capabilities(context.Context, *none) (any, error) {
	return map[string]string{"Scope": "local", "ConnectivityScope": "global"}, nil
}
