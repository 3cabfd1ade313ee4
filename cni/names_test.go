package cni_test

import (
	"errors"
	"testing"

	"github.com/fairlead/fairlead/cni"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what     string
		validate func(string) error
		good     []string
		bad      []string
		code     uint
	}{
		{"container ID", cni.ValidateContainerID, []string{"a", "0", "cnitool-1_2.3"}, []string{"-a", "_a", ".a", "a/b", "a b", "é"}, cni.CodeInvalidEnvironment},
		{"no container ID", cni.ValidateContainerID, nil, []string{""}, cni.CodeUnknownContainer},
		{"network", cni.ValidateNetworkName, []string{"net.1", "k8s-pod-network"}, []string{"", "../x", "a:b"}, cni.CodeInvalidNetworkConfig},
		{"interface", cni.ValidateInterfaceName, []string{"eth0", "a.100", "exactly15bytes_"}, []string{"", "sixteen_bytes_xx", ".", "..", "a/b", "a:b", "a b", "a\tb", "a\u00a0b", "eth%d", "%"}, cni.CodeInvalidEnvironment},
		{"plugin", cni.ValidatePluginType, []string{"bridge", "host-local", "x.exe"}, []string{"", "../bridge", "/bin/sh", `a\b`, "..", "."}, cni.CodeInvalidNetworkConfig},
	} {
		for _, s := range tt.good {
			if err := tt.validate(s); err != nil {
				t.Errorf("%s %q: %v", tt.what, s, err)
			}
		}
		for _, s := range tt.bad {
			e, ok := errors.AsType[*cni.Error](tt.validate(s))
			if !ok || e.Code != tt.code {
				t.Errorf("%s %q: got %v, want code %d", tt.what, s, e, tt.code)
			}
		}
	}
}
