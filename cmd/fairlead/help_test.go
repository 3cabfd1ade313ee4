package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand calls f for each visible command below c.
func everyCommand(c *cobra.Command, f func(*cobra.Command)) {
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			f(sub)
			everyCommand(sub, f)
		}
	}
}

func TestSuggestions(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"chek": "check", "docter": "doctor", "statsu": "status", "lst": "list", "ad": "add", "instal": "install", "versoin": "version",
		"delete": "del", "rm": "del", "remove": "del", "ps": "list", "get": "list", "nodes": "node list", "networks": "network list", "pods": "pod list",
		"fix": "repair", "prune": "gc", "verify": "check", "attach": "add", "lint": "validate", "daemon": "agent",
		"node lst": "node list", "node rm": "node remove", "node delete": "node remove", "node ps": "node list", "node describe": "node show",
		"network rm": "network delete", "network remove": "network delete", "network edit": "network apply", "network add": "network create", "network creat": "network create",
		"pod rm": "pod teardown", "pod delete": "pod teardown", "pod add": "pod attach", "pod ps": "pod list", "pod new": "pod setup",
		"ipam list": "ipam show", "ipam delete": "ipam release", "ipam chek": "ipam check",
		"agent staus": "agent status", "agent show": "agent status", "dhcp-daemon statsu": "dhcp-daemon status",
	} {
		code, _, errs := call(nil, append([]string{"fairlead"}, strings.Fields(line)...)...)
		if code != exitUsage || !strings.Contains(errs, "there is no command \""+line+"\"\nDid you mean: fairlead "+want+"\n") {
			t.Errorf("%s: exit code %d, want %s: %s", line, code, want, errs)
		}
	}
	for _, line := range []string{"frobnicate", "node frobnicate", "xyz"} {
		if code, _, errs := call(nil, append([]string{"fairlead"}, strings.Fields(line)...)...); code != exitUsage || strings.Contains(errs, "Did you mean") {
			t.Errorf("%s: exit code %d: %s", line, code, errs)
		}
	}
}

// TestSuggestionsForEveryCommand leaves out one letter of each command.
func TestSuggestionsForEveryCommand(t *testing.T) {
	t.Parallel()
	everyCommand(newApp().root(), func(c *cobra.Command) {
		if len(c.Name()) < 5 || c.IsAdditionalHelpTopicCommand() || c.Parent().Name() == "completion" {
			return
		}
		line := strings.Fields(c.CommandPath())
		last := line[len(line)-1]
		line[len(line)-1] = last[:2] + last[3:]
		if _, _, errs := call(nil, line...); !strings.Contains(errs, "Did you mean: "+c.CommandPath()+"\n") {
			t.Errorf("%s: %s", strings.Join(line, " "), errs)
		}
	})
}

func TestUnknownHelpTopic(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"help nosuch": `there is no command "nosuch"`, "help chek": "Did you mean: fairlead check", "help node nosuch": `there is no command "node nosuch"`, "help add nosuch": `there is no command "add nosuch"`,
	} {
		code, out, errs := call(nil, append([]string{"fairlead"}, strings.Fields(line)...)...)
		if code != exitUsage || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", line, code, out, errs)
		}
	}
}

// TestHelpListsSubcommands verifies that the help of each group lists all of its commands.
func TestHelpListsSubcommands(t *testing.T) {
	t.Parallel()
	groups := 0
	everyCommand(newApp().root(), func(c *cobra.Command) {
		if !c.HasAvailableSubCommands() {
			return
		}
		groups++
		code, out, _ := call(nil, append(strings.Fields(c.CommandPath()), "--help")...)
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && !strings.Contains(out, "\n  "+sub.Name()+" ") || code != 0 {
				t.Errorf("%s --help: exit code %d, no %s in\n%s", c.CommandPath(), code, sub.Name(), out)
			}
		}
	})
	if groups < 6 {
		t.Errorf("only %d groups", groups)
	}
}

// TestFlagsAreDescribed verifies that each flag is described in complete sentences.
func TestFlagsAreDescribed(t *testing.T) {
	t.Parallel()
	root := newApp().root()
	check := func(c *cobra.Command) func(*pflag.Flag) {
		return func(f *pflag.Flag) {
			first := f.Usage[:min(1, len(f.Usage))]
			if !strings.HasSuffix(f.Usage, ".") || first != strings.ToUpper(first) && !strings.HasPrefix(f.Usage, "- ") {
				t.Errorf("%s --%s: %q", c.CommandPath(), f.Name, f.Usage)
			}
		}
	}
	root.Flags().VisitAll(check(root))
	everyCommand(root, func(c *cobra.Command) { c.LocalFlags().VisitAll(check(c)) })
}

// TestHelpWidth checks that the descriptions and the flags of every command have at most helpWidth columns.
func TestHelpWidth(t *testing.T) {
	t.Parallel()
	everyCommand(newApp().root(), func(c *cobra.Command) {
		text := c.Long + "\n" + c.LocalFlags().FlagUsagesWrapped(helpWidth)
		for line := range strings.Lines(text) {
			if n := len(strings.TrimRight(line, "\n")); n > helpWidth {
				t.Errorf("%s: %d columns, at most %d: %s", c.CommandPath(), n, helpWidth, line)
			}
		}
	})
}

func TestCompletionNeedsShell(t *testing.T) {
	t.Parallel()
	code, out, errs := call(nil, "fairlead", "completion")
	if code != exitUsage || !strings.Contains(out, "\n  bash ") || !strings.Contains(errs, "Want bash, fish or zsh.") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	code, out, errs = call(nil, "fairlead", "completion", "nosuch")
	if code != exitUsage || out != "" || !strings.Contains(errs, `there is no completion script for "nosuch"`) {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if code, _, errs := call(nil, "fairlead", "completion", "bash", "extra"); code != exitUsage || !strings.Contains(errs, `too many arguments, from "extra" on`) {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if code, out, errs := call(nil, "fairlead", "completion", "bash"); code != 0 || !strings.Contains(out, "__start_fairlead") || errs != "" {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestVersionFlag(t *testing.T) {
	t.Parallel()
	_, want, _ := call(nil, "fairlead", "version")
	if code, out, _ := call(nil, "fairlead", "--version"); code != 0 || out != want {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestOutputFormats runs commands that list or show with every format.
func TestOutputFormats(t *testing.T) {
	t.Parallel()
	h := newIPAMHost(t)
	for _, line := range []string{"list", "version", "node list", "node show here", "network list", "network show default", "ipam show", "ipam check", "map", "pod list", "validate ../../examples"} {
		for format, want := range map[string]string{"json": "", "yaml": "", "table": "", "wide": ""} {
			code, out, errs := h.fairlead(append(strings.Fields(line), "-o", format)...)
			if code != 0 && code != exitWrong || !strings.Contains(out, want) || out == "" {
				t.Errorf("%s -o %s: exit code %d: %s%s", line, format, code, out, errs)
			}
			isJSON := strings.HasPrefix(out, "{") || strings.HasPrefix(out, "[")
			if isJSON != (format == "json") && !(format == "yaml" && (out == "[]\n" || out == "{}\n")) {
				t.Errorf("%s -o %s: %s", line, format, out)
			}
		}
		_, short, _ := h.fairlead(append(strings.Fields(line), "--json")...)
		if _, long, _ := h.fairlead(append(strings.Fields(line), "--output", "json")...); short != long {
			t.Errorf("%s: --json prints\n%s\n--output json prints\n%s", line, short, long)
		}
	}
	if code, _, errs := h.fairlead("list", "-o", "xml"); code != exitUsage || !strings.Contains(errs, "--output xml: want table, wide, json or yaml\n") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestAgentConfiguration verifies that every error in a configuration has a position and one exit code.
func TestAgentConfiguration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"network:\n  subnets:\n  - cidr: 10.244.0.0/16\n  backends:\n  - type: vxlann\n": "agent.yaml:5:11: network.backends[0].type = vxlann: want one of host-gw, vxlan, wireguard, ipip, bgp\n",
		"network:\n  subnets:\n  - cidr: 10.244.0.0/16\n  backnds:\n  - type: vxlann\n":  "agent.yaml:4:3: network.backnds: there is no such key: did you mean \"backends\"?\n",
		"network:\n  subnets:\n  - cidr: 10.244.0.1/16\n":                                "agent.yaml:3:11: network default: subnets[0].cidr is 10.244.0.1/16",
		"node: a\n  b: c\n": "agent.yaml:2:3: there is a second \":\" on one line",
		"network: {subnets: [{cidr: 10.0.0.0/8}], backends: [{type: vxlan, port: 99999}]}": "agent.yaml:1:73: network default: backends[0].port is 99999",
	} {
		file := write(t, t.TempDir(), "agent.yaml", text)
		for _, line := range []string{"agent", "node list", "network list", "map"} {
			code, _, errs := call(map[string]string{"FAIRLEAD_LIB": t.TempDir(), "FAIRLEAD_RUN": t.TempDir()}, append(append([]string{"fairlead"}, strings.Fields(line)...), "--config", file)...)
			if code != exitInvalid || !strings.HasPrefix(errs, "fairlead: "+filepath.Dir(file)+"/"+want) {
				t.Errorf("%s: exit code %d, want %s: %s", line, code, want, errs)
			}
		}
	}
	for args, want := range map[string]string{
		"--grace soon": "--grace soon: ", "--addresses x": `--addresses x: "x" is not an address`, "--network-config {": "--network-config {: ",
		"--store-etcd-endpoints=": "--store-etcd-endpoints is empty\nFor the store in a file, add --store-file FILE", "--store-kubernetes-kubeconfig=": "--store-kubernetes-kubeconfig is empty",
		"--store-file /s --store-etcd-endpoints http://127.0.0.1:1": "--store-file /s: the configuration names another store",
		"--log-level loud": "--log-level loud: want debug, info, warn or error", "--log-format xml": "--log-format xml: want text or json",
	} {
		if code, _, errs := call(map[string]string{"FAIRLEAD_LIB": t.TempDir()}, append([]string{"fairlead", "agent"}, strings.Fields(args)...)...); code != exitUsage || !strings.HasPrefix(errs, "fairlead: "+want) {
			t.Errorf("agent %s: exit code %d: %s", args, code, errs)
		}
	}
	if code, _, errs := call(map[string]string{"FAIRLEAD_LIB": t.TempDir(), "FAIRLEAD_AGENT_GRACE": "soon"}, "fairlead", "agent"); code != exitInvalid || !strings.HasPrefix(errs, "fairlead: FAIRLEAD_AGENT_GRACE: ") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestUnsetVariables verifies that a flag with an empty value is an error, as of a script's variable that is unset. The
// command must not do more than the user wants: uninstall from every node, or publish no port.
func TestUnsetVariables(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"install --dry-run --bin-dir=", "install --dry-run --network=", "install --dry-run --plugins=", "install --dry-run --network=x --conf-dir=", "uninstall --dry-run --bin-dir=",
		"kubernetes uninstall --dry-run --node=", "kubernetes uninstall --dry-run --context=", "kubernetes install --dry-run --from=flannel --node=",
		"gc one --dry-run --keep=", "pod gc --dry-run --keep=", "pod setup web --publish=", "pod setup web --mac=", "fuse one.conflist --to=", "map --svg=",
		"network create one --subnet=10.0.0.0/16 --dry-run --exclude=", "network create one --dry-run --subnet=10.0.0.0/16,", "policy check --filename=", "policy log --pod=",
		"node list --config=", "list --container=", "dhcp-daemon status --socketpath=",
	} {
		flag := args[strings.LastIndex(args, " -")+1:]
		want := "fairlead: " + flag[:strings.Index(flag, "=")] + " is empty\nType: fairlead "
		if code, out, errs := call(nil, append([]string{"fairlead"}, strings.Fields(args)...)...); code != exitUsage || out != "" || !strings.HasPrefix(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
}

// TestEmptyFlags verifies that an empty flag overrides the file and the environment: the setting has its default.
func TestEmptyFlags(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "agent.yaml", `
listen: 127.0.0.1:9479
grace: 1h
addresses: [192.0.2.1]
store: {etcd: {endpoints: ["http://192.0.2.9:2379"], prefix: /x/}}
network: {subnets: [{cidr: 10.0.0.0/8}]}
policy: {enabled: true}
`)
	a := &app{getenv: func(name string) string { return map[string]string{"FAIRLEAD_AGENT_LISTEN": "127.0.0.1:1"}[name] }}
	f, c := &agentFlags{}, &cobra.Command{Use: "agent"}
	f.add(c)
	must(t, c.ParseFlags([]string{"--config", file, "--listen", "", "--grace=", "--addresses=", "--store-etcd-endpoints=", "--store-file=/store", "--store-etcd-prefix=", "--network-config=", "--policy-enabled="}))
	got, err := a.agentConfig(f)
	must(t, err)
	f.path = write(t, t.TempDir(), "agent.yaml", "")
	want, err := a.agentConfig(f)
	must(t, err)
	if !reflect.DeepEqual(got, want) || got.Listen != "" {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestLogFlags verifies the format and the level of the agent's log.
func TestLogFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		l    logFlags
		want string
	}{{logFlags{level: "warn", format: "text"}, "level=WARN msg=w\n"}, {logFlags{level: "debug", format: "json"}, `"msg":"d"`}, {logFlags{level: "info", format: "text", verbose: true}, "msg=d\n"}} {
		var b strings.Builder
		log := c.l.logger(&b)
		log.Debug("d")
		log.Warn("w")
		if !strings.Contains(b.String(), c.want) || (c.l.level == "warn") == strings.Contains(b.String(), "DEBUG") {
			t.Errorf("%+v: %s", c.l, b.String())
		}
	}
}

// TestOldFlagNames verifies that flags with old names still work, and that help does not show them.
func TestOldFlagNames(t *testing.T) {
	t.Parallel()
	for line, flag := range map[string]string{"agent": "verbose", "migrate": "check", "ipam release": "yes"} {
		c, _, err := newApp().root().Find(strings.Fields(line))
		must(t, err)
		f := c.LocalFlags().Lookup(flag)
		if f == nil || !f.Hidden {
			t.Errorf("%s --%s: %+v", line, flag, f)
		}
	}
	h := newIPAMHost(t)
	_, show, _ := h.fairlead("network", "show", "default")
	file := write(t, t.TempDir(), "n.yaml", show)
	if code, out, errs := h.fairlead("network", "set", "default", file); code != 0 || out != "unchanged default\n" {
		t.Errorf("network set: exit code %d: %s%s", code, out, errs)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// TestNodeRemovePreview verifies that --dry-run changes nothing.
func TestNodeRemovePreview(t *testing.T) {
	t.Parallel()
	h := newIPAMHost(t)
	for _, c := range []struct {
		code int
		want string
		args string
	}{
		{0, "would remove here\n", "node remove here --dry-run"},
		{0, "here  away", "node list"},
		{1, "there is no node nope; there are: here", "node remove nope -n"},
		{0, "removed here\n", "node remove here"},
		{1, "there is no node here", "node remove here --dry-run"},
	} {
		if code, out, errs := h.fairlead(strings.Fields(c.args)...); code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("%s: exit code %d: %s%s", c.args, code, out, errs)
		}
	}
}
