package dataset

import (
	"strings"

	"github.com/asrconfig/asrconfig-go/core/audio"
)

// list reads one path a line. A line with further columns, such as wav2letter's "id path duration words", gives the first of
// them that ends like an audio file.
func (m *manifest) list() error {
	return m.eachLine(func(_ int, line []byte) error {
		path := strings.TrimSpace(string(line))
		if !audio.HasExtension(path) {
			for _, field := range strings.Fields(path) {
				if audio.HasExtension(field) {
					path = field
					break
				}
			}
		}
		m.add(mention{path: path})
		return nil
	})
}
