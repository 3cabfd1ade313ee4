package figures

// Text is a report for a terminal.
func (r Report) Text() (text string) {
	for _, g := range r.Groups() {
		text += "\n" + g + "\n" + Table(r.Of(g))
	}
	return text
}

// Page are the files of a report.
func (r Report) Page(others ...Report) map[string]string { return nil }
