package wire

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/cni"
)

// DecodeVersions decodes a plugin's answer to VERSION. In 0.2.0, supportedVersions may be missing.
func DecodeVersions(data []byte) (current string, supported []string, err error) {
	var v struct {
		CNIVersion        string   `json:"cniVersion"`
		SupportedVersions []string `json:"supportedVersions"`
	}
	if err := cni.Decode(data, &v); err != nil {
		return "", nil, fmt.Errorf("decode version info: %w", err)
	}
	switch {
	case v.CNIVersion == "":
		return "", nil, errors.New("decode version info: missing field cniVersion")
	case len(v.SupportedVersions) == 0 && v.CNIVersion == "0.2.0":
		return v.CNIVersion, []string{"0.1.0", "0.2.0"}, nil
	case len(v.SupportedVersions) == 0:
		return "", nil, errors.New("decode version info: missing field supportedVersions")
	}
	return v.CNIVersion, v.SupportedVersions, nil
}
