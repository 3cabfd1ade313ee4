// Cri is a client of the Kubernetes container runtime interface (CRI) for the end-to-end tests. It reads calls as lines
// of JSON from standard input and writes the answers to standard output as they arrive, so that calls can run
// concurrently.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// call and answer are the lines of JSON.
type call struct {
	ID      int
	Method  string
	Request json.RawMessage
}

type answer struct {
	ID       int
	Error    string `json:",omitempty"`
	Response any    `json:",omitempty"`
}

// messages maps the methods that the tests use to new request and response messages.
var messages = map[string]func() (request, response any){
	"Version":             func() (any, any) { return &cri.VersionRequest{}, &cri.VersionResponse{} },
	"Status":              func() (any, any) { return &cri.StatusRequest{}, &cri.StatusResponse{} },
	"RunPodSandbox":       func() (any, any) { return &cri.RunPodSandboxRequest{}, &cri.RunPodSandboxResponse{} },
	"StopPodSandbox":      func() (any, any) { return &cri.StopPodSandboxRequest{}, &cri.StopPodSandboxResponse{} },
	"RemovePodSandbox":    func() (any, any) { return &cri.RemovePodSandboxRequest{}, &cri.RemovePodSandboxResponse{} },
	"PodSandboxStatus":    func() (any, any) { return &cri.PodSandboxStatusRequest{}, &cri.PodSandboxStatusResponse{} },
	"ListPodSandbox":      func() (any, any) { return &cri.ListPodSandboxRequest{}, &cri.ListPodSandboxResponse{} },
	"CreateContainer":     func() (any, any) { return &cri.CreateContainerRequest{}, &cri.CreateContainerResponse{} },
	"StartContainer":      func() (any, any) { return &cri.StartContainerRequest{}, &cri.StartContainerResponse{} },
	"StopContainer":       func() (any, any) { return &cri.StopContainerRequest{}, &cri.StopContainerResponse{} },
	"RemoveContainer":     func() (any, any) { return &cri.RemoveContainerRequest{}, &cri.RemoveContainerResponse{} },
	"ExecSync":            func() (any, any) { return &cri.ExecSyncRequest{}, &cri.ExecSyncResponse{} },
	"UpdateRuntimeConfig": func() (any, any) { return &cri.UpdateRuntimeConfigRequest{}, &cri.UpdateRuntimeConfigResponse{} },
}

func main() {
	if err := serve(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "cri:", err)
		os.Exit(1)
	}
}

func serve(endpoint string) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("read a call: %w", err)
		}
		go func() {
			response, err := c.do(conn)
			a := answer{ID: c.ID, Response: response}
			if err != nil {
				a = answer{ID: c.ID, Error: err.Error()}
			}
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(a)
		}()
	}
	return lines.Err()
}

func (c call) do(conn *grpc.ClientConn) (any, error) {
	make := messages[c.Method]
	if make == nil {
		return nil, fmt.Errorf("no method %q", c.Method)
	}
	request, response := make()
	if err := json.Unmarshal(c.Request, request); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Method, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	return response, conn.Invoke(ctx, "/runtime.v1.RuntimeService/"+c.Method, request, response)
}
