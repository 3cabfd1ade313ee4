package plugin

import "testing"

// An empty MAC in CNI_ARGS counts as absent. CNI_ARGS that are not pairs are an error for a plugin that reads MAC.
func TestMACInArgs(t *testing.T) {
	t.Parallel()
	const own = "02:00:00:00:00:01"
	for args, want := range map[string]string{
		"": own, "MAC=": own, "IgnoreUnknown=1;MAC=02:00:00:00:00:02": "02:00:00:00:00:02", "none": "error",
		"MAC=00:00:00:00:00:00": "error", "MAC=01:00:00:00:00:02": "error", "MAC=ff:ff:ff:ff:ff:ff": "error",
	} {
		got, err := (&Conf{}).MAC(&Attachment{Args: args}, own)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("CNI_ARGS %q: %q, want %q", args, got, want)
		}
	}
}
