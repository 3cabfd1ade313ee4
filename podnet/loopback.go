package podnet

import "github.com/fairlead/fairlead/libcni"

// loopbackNetwork is the network name under which other runtimes set up lo.
const loopbackNetwork = "cni-loopback"

// loopback returns the network that every pod gets in addition to the requested ones. Its result is not reported.
func loopback() (*libcni.NetworkConfigList, error) {
	return libcni.ConfListFromBytes([]byte(`{"cniVersion": "1.0.0", "name": "` + loopbackNetwork + `", "plugins": [{"type": "loopback"}]}`))
}

// withLoopback adds lo to a pod's parts if the loopback plugin is installed.
func (m *Manager) withLoopback(p *Pod, parts []*part) ([]*part, error) {
	if m.options.NoLoopback {
		return parts, nil
	}
	list, err := loopback()
	if err != nil {
		return nil, err
	}
	if _, err := m.exec.FindInPath("loopback", m.options.PluginDirs); err != nil {
		m.options.Warn("lo of pod "+p.ID+" stays down", err)
		return parts, nil
	}
	q := &part{list: list, noted: noted{Network: list.Name, IfName: "lo", Config: list.Bytes}}
	q.rt = q.runtimeConf(p.ID, p.Netns)
	return append(parts, q), nil
}

func (n *noted) isLoopback() bool { return n.Network == loopbackNetwork && n.IfName == "lo" }
