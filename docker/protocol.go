package docker

import "encoding/json"

// The messages of libnetwork's remote drivers: github.com/moby/libnetwork, drivers/remote/api and ipams/remote/api.

type poolData struct {
	Pool         string
	Gateway      string
	AuxAddresses map[string]string // by the user's name, with the pool's prefix length
}

type networkRequest struct {
	NetworkID string
	Options   map[string]json.RawMessage
	IPv4Data  []poolData
	IPv6Data  []poolData
}

// endpointInterface has the attributes of an endpoint that Docker chose and, in a response, those that the driver
// chose.
type endpointInterface struct {
	Address     string `json:",omitempty"`
	AddressIPv6 string `json:",omitempty"`
	MacAddress  string `json:",omitempty"`
}

type endpointRequest struct {
	NetworkID  string
	EndpointID string
	Interface  *endpointInterface
	Options    map[string]json.RawMessage
}

type endpointResponse struct {
	Interface *endpointInterface `json:",omitempty"`
}

type infoResponse struct {
	Value map[string]any
}

type joinRequest struct {
	NetworkID  string
	EndpointID string
	SandboxKey string
}

type interfaceName struct {
	SrcName   string
	DstPrefix string
}

// Types of a static route.
const (
	viaGateway = 0
	connected  = 1
)

type staticRoute struct {
	Destination string
	RouteType   int
	NextHop     string `json:",omitempty"`
}

type joinResponse struct {
	InterfaceName         interfaceName
	Gateway               string        `json:",omitempty"`
	GatewayIPv6           string        `json:",omitempty"`
	StaticRoutes          []staticRoute `json:",omitempty"`
	DisableGatewayService bool
}

type discoveryRequest struct {
	DiscoveryType int
}

type poolRequest struct {
	AddressSpace string
	Pool         string
	SubPool      string
	Options      map[string]string
	V6           bool
}

type poolResponse struct {
	PoolID string
	Pool   string
	Data   map[string]string
}

type releasePoolRequest struct {
	PoolID string
}

type addressRequest struct {
	PoolID  string
	Address string
	Options map[string]string
}

type addressResponse struct {
	Address string
	Data    map[string]string
}

// errorResponse has the error twice: dockerd reads Err from a network driver, and Error from an IPAM driver.
type errorResponse struct {
	Err   string
	Error string
}

func failed(text string) errorResponse { return errorResponse{text, text} }

// Keys of options.
const (
	genericOptions  = "com.docker.network.generic"
	internalOption  = "com.docker.network.internal"
	portMapOption   = "com.docker.network.portmap"
	requestTypeKey  = "RequestAddressType"
	gatewayAddress  = "com.docker.network.gateway"
	macAddressValue = "com.docker.network.endpoint.macaddress"
)
