package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead/fairlead/agent/cluster"
	"github.com/fairlead/fairlead/agent/store"
)

// Names in the API.
const (
	Group   = "fairlead.io"
	Version = "v1alpha1"

	annotation  = Group + "/value" // value of a key whose object has no field for it
	sessionName = "node."          // the names of sessions' Leases begin so
)

// object is an object of a custom resource, or a Lease.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              json.RawMessage `json:"spec"`
	Status            json.RawMessage `json:"status,omitempty"` // the API ignores it in a write of the object
}

// kind says how the keys with a prefix are kept.
type kind struct {
	prefix string
	path   string // of the resource in the API; "" stores nothing
	api    metav1.TypeMeta

	name func(key string) (string, error)                // of a key's object
	key  func(o *object) string                          // of an object; "" if another program made it
	took func(name string) string                        // key of a name, whatever the content; nil: unknown
	pack func(key string, value []byte, o *object) error // puts a key's value into an object
}

func custom(prefix, kindName, plural string, name func(string) (string, error), fields func(key string) (map[string]any, error)) *kind {
	k := &kind{
		prefix: prefix, path: "/apis/" + Group + "/" + Version + "/" + plural, name: name,
		api: metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: kindName},
	}
	k.pack = func(key string, value []byte, o *object) error {
		more, err := fields(key)
		if err != nil {
			return err
		}
		o.Spec, err = merge(value, more, o.Spec)
		return err
	}
	return k
}

// merge returns a JSON object with more fields. A field that the object's old form has stays as it is: the API rejects another
// spelling of an address, too.
func merge(value []byte, more map[string]any, old json.RawMessage) (json.RawMessage, error) {
	all, had := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(value, &all), json.Unmarshal(old, &had)); err != nil {
		return nil, err
	}
	for name, v := range more {
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		if all[name] = raw; had[name] != nil {
			all[name] = had[name]
		}
	}
	return json.Marshal(all)
}

// identity are the fields of a spec that form its key.
type identity struct {
	Network   string       `json:"network"`
	CIDR      netip.Prefix `json:"cidr"`
	IP        netip.Addr   `json:"ip"`
	Pod       string       `json:"pod"`
	Interface string       `json:"interface"`
}

// kinds returns how each prefix of keys is kept. Leases are in a namespace.
func kinds(namespace string) []*kind {
	networks := custom(cluster.NetworksPrefix, "Network", "networks", plainName(cluster.NetworksPrefix), func(string) (map[string]any, error) { return nil, nil })
	networks.key = func(o *object) string { return cluster.NetworkKey(o.Name) }

	blocks := custom(cluster.BlocksPrefix, "IPBlock", "ipblocks", blockName, func(key string) (map[string]any, error) {
		network, cidr, err := cluster.ParseBlockKey(key)
		return map[string]any{"network": network, "cidr": cidr}, err
	})
	blocks.key = func(o *object) string {
		i := o.identity()
		return checked(o, blockName, cluster.BlockKey(i.Network, i.CIDR), i.CIDR.IsValid())
	}
	blocks.took = keyOfBlock

	addresses := custom(cluster.AddressesPrefix, "IPAddress", "ipaddresses", addressName, func(key string) (map[string]any, error) {
		network, ip, err := cluster.ParseAddressKey(key)
		return map[string]any{"network": network, "ip": ip}, err
	})
	addresses.key = func(o *object) string {
		i := o.identity()
		return checked(o, addressName, cluster.AddressKey(i.Network, i.IP), i.IP.IsValid())
	}
	addresses.took = keyOfAddress

	fixed := custom(cluster.FixedPrefix, "FixedAddress", "fixedaddresses", fixedName, func(key string) (map[string]any, error) {
		f := strings.Split(key, "/")
		return map[string]any{"network": f[1], "pod": f[2] + "/" + f[3], "interface": f[4]}, nil
	})
	fixed.key = func(o *object) string {
		i := o.identity()
		return checked(o, fixedName, cluster.FixedKey(i.Network, i.Pod, i.Interface), true)
	}

	return []*kind{
		networks, blocks, addresses, fixed,
		lease(namespace, cluster.AlivePrefix, sessionName), lease(namespace, cluster.VNIsPrefix, "vni."),
		{prefix: cluster.NodesPrefix}, {prefix: cluster.EndpointsPrefix},
	}
}

// lease keeps keys as Leases, whose names begin with a word.
func lease(namespace, prefix, word string) *kind {
	return &kind{
		prefix: prefix, path: "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases",
		api: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		name: func(key string) (string, error) {
			name, err := plainName(prefix)(key)
			return word + name, err
		},
		key: func(o *object) string {
			if name, ok := strings.CutPrefix(o.Name, word); ok {
				return prefix + name
			}
			return ""
		},
		pack: func(_ string, value []byte, o *object) error {
			o.Annotations = map[string]string{annotation: string(value)}
			return nil
		},
	}
}

func (o *object) identity() (i identity) {
	_ = json.Unmarshal(o.Spec, &i) // the schema rejects others
	return i
}

// checked returns a key if it is the one that the object's name stands for. An object of another name does not claim
// anything: only names are exclusive.
func checked(o *object, name func(string) (string, error), key string, ok bool) string {
	if want, err := name(key); !ok || err != nil || want != o.Name {
		return ""
	}
	return key
}

// plainName returns the rest of a key, which must be a name in Kubernetes.
func plainName(prefix string) func(string) (string, error) {
	return func(key string) (string, error) {
		name := strings.TrimPrefix(key, prefix)
		return name, checkName(name)
	}
}

func checkName(name string) error {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			return fmt.Errorf("the name %q: Kubernetes allows lower-case letters, digits, '-' and '.'", name)
		}
	}
	if name == "" || len(name) > 253 || strings.Trim(name, "-.") != name {
		return fmt.Errorf("the name %q: Kubernetes allows 1 to 253 characters, with a letter or digit at both ends", name)
	}
	return nil
}

// word returns an address as a part of a name. IPv6 addresses have all digits, so each address has one name.
func word(a netip.Addr) string { return strings.ReplaceAll(a.StringExpanded(), ":", "-") }

func blockName(key string) (string, error) {
	network, cidr, err := cluster.ParseBlockKey(key)
	if err != nil {
		return "", err
	}
	return network + "." + word(cidr.Addr()) + "-" + strconv.Itoa(cidr.Bits()), checkName(network)
}

// addressName returns the name of an address's object. Names of whereabouts networks may have "..", ".-" or too many
// characters for a name in Kubernetes, for example whereabouts-fd00..-64. A digest then stands for the network.
func addressName(key string) (string, error) {
	network, ip, err := cluster.ParseAddressKey(key)
	if err != nil {
		return "", err
	}
	name := network + "." + word(ip)
	if validation.IsDNS1123Subdomain(name) != nil {
		name = digest(network) + "." + word(ip)
	}
	return name, checkName(network)
}

// digest returns a text of fixed length as a part of a name.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:10])
}

// keyOfBlock returns the key whose object has a name, or "".
func keyOfBlock(name string) string {
	i := strings.LastIndex(name, "-")
	network, ip := splitName(name[:max(i, 0)])
	bits, _ := strconv.Atoi(name[i+1:])
	if p := netip.PrefixFrom(ip, bits); p.IsValid() && p == p.Masked() {
		return sameName(name, blockName, cluster.BlockKey(network, p))
	}
	return ""
}

// keyOfAddress returns the key whose object has a name, or "".
func keyOfAddress(name string) string {
	if network, ip := splitName(name); ip.IsValid() {
		return sameName(name, addressName, cluster.AddressKey(network, ip))
	}
	return ""
}

// sameName returns a key if its object has a name, or "": an address has several spellings.
func sameName(name string, of func(key string) (string, error), key string) string {
	if is, err := of(key); err != nil || is != name {
		return ""
	}
	return key
}

// splitName splits a name into a network, which may have dots, and an address.
func splitName(name string) (network string, ip netip.Addr) {
	end := len(name)
	for range net.IPv4len { // an IPv6 address has no dot, and an IPv4 address three
		if end = strings.LastIndex(name[:end], "."); end < 0 {
			break
		}
		if ip, err := netip.ParseAddr(strings.ReplaceAll(name[end+1:], "-", ":")); err == nil {
			return name[:end], ip
		}
	}
	return "", netip.Addr{}
}

func fixedName(key string) (string, error) {
	f := strings.Split(key, "/")
	if len(f) != 5 {
		return "", fmt.Errorf("key %q: want fixed/NETWORK/NAMESPACE/NAME/IFNAME", key)
	}
	return f[1] + "." + digest(strings.Join(f[2:], "/")), checkName(f[1])
}

// mismatch is the error for an object whose content does not match its name.
func (k *kind) mismatch(name string) error {
	return fmt.Errorf("the content of the %s %s does not match its name: delete it", k.api.Kind, name)
}

// entry returns an object as an entry. It returns false for an object that stands for no key. If the name is that of
// a key and the content is not, the entry is invalid: nobody can create the key's object, so the key is not free.
func (k *kind) entry(o *object) (e store.Entry, ok bool) {
	e.Key, e.Value, e.Revision = k.key(o), o.Spec, revisionOf(o)
	if k.isLease() {
		e.Value = []byte(o.Annotations[annotation])
	}
	if e.Key == "" && k.took != nil {
		e.Key = k.took(o.Name)
		e.Value, _ = json.Marshal(k.mismatch(o.Name).Error()) // a string can always be encoded
	}
	return e, e.Key != ""
}

func (k *kind) isLease() bool {
	return k.prefix == cluster.AlivePrefix || k.prefix == cluster.VNIsPrefix
}

// revisionOf returns an object's revision. That of a session identifies its Lease, whatever others write to it.
func revisionOf(o *object) int64 {
	if strings.HasPrefix(o.Name, sessionName) && o.Kind == "Lease" {
		h := fnv.New64a()
		h.Write([]byte(o.UID))
		return int64(h.Sum64()>>2) + 1
	}
	return number(o.ResourceVersion)
}

func number(resourceVersion string) int64 {
	n, _ := strconv.ParseInt(resourceVersion, 10, 64) // the API promises a number
	return n
}
