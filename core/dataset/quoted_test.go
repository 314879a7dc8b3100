package dataset

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNoFileIsQuoted scans what leads to a file that is none of the dataset's: its lines are in no error and no report.
func TestNoFileIsQuoted(t *testing.T) {
	const secret = "root:$6$swordfish:19000:0:99999:7:::\ndaemon:*swordfish:19000:0\n"
	for name, c := range map[string]struct {
		files  map[string]string // "" is a link to the secret
		source func(root string) Request
	}{
		"entry of a manifest": {map[string]string{"m.jsonl": `{"path":"shadow"}`}, func(root string) Request { return Request{Manifest: root + "/m.jsonl"} }},
		"clip":                {map[string]string{"a.wav": ""}, func(root string) Request { return Request{Folder: root} }},
		"shard":               {nil, func(root string) Request { return Request{Shards: []string{root + "/shadow"}} }},
		"JSON lines":          {map[string]string{"m.jsonl": ""}, func(root string) Request { return Request{Manifest: root + "/m.jsonl"} }},
		"CSV":                 {map[string]string{"m.csv": ""}, func(root string) Request { return Request{Manifest: root + "/m.csv"} }},
		"TSV":                 {map[string]string{"m.tsv": ""}, func(root string) Request { return Request{Manifest: root + "/m.tsv"} }},
		"wav.scp":             {map[string]string{"wav.scp": ""}, func(root string) Request { return Request{Folder: root} }},
		"segments":            {map[string]string{"wav.scp": "u1 a.wav\n", "segments": ""}, func(root string) Request { return Request{Folder: root} }},
		"utt2dur":             {map[string]string{"wav.scp": "u1 sox |\n", "utt2dur": ""}, func(root string) Request { return Request{Folder: root} }},
		"utt2dur alone":       {map[string]string{"utt2dur": ""}, func(root string) Request { return Request{Manifest: root + "/utt2dur"} }},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			shadow := filepath.Join(root, "shadow")
			require.NoError(t, os.WriteFile(shadow, []byte(secret), 0o600))
			for file, content := range c.files {
				if content == "" {
					require.NoError(t, os.Symlink(shadow, filepath.Join(root, file)))
				} else {
					require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(content), 0o600))
				}
			}
			request := c.source(root)
			request.AllowEmpty = true
			result, err := Scan(context.Background(), request, new(Progress))
			shown := strings.Join(result.Profile.Warnings, "\n")
			if err != nil {
				shown += err.Error()
			} else {
				shown += strings.Join(told(result, root), "\n")
			}
			require.NotEmpty(t, shown)
			assert.NotContains(t, shown, "swordfish")
			assert.NotContains(t, shown, "root:")
		})
	}
}
