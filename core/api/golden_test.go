package api

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/jsontext"
)

// Each file of capi/testdata is one operation's requests with their answers; the Python tests send
// the same requests through the shared library. After an intended change: go test ./core/api -run
// Golden -update, then read the diff.
var update = flag.Bool("update", false, "write the answers of this version into capi/testdata")

const goldenDir = "../../capi/testdata"

type goldenPair struct {
	Request json.RawMessage `json:"request"`
	Answer  json.RawMessage `json:"answer"`
}

func TestGolden(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			pairs := readGolden(t, file)
			for i, pair := range pairs {
				got := Call(pair.Request)
				if *update {
					pairs[i].Answer = got
					continue
				}
				require.JSONEq(t, string(pair.Answer), string(got), "request %s", pair.Request)
			}
			if *update {
				writeGolden(t, file, pairs)
			}
		})
	}
}

// TestEveryOperationHasAGoldenPair also finds files of operations that are gone.
func TestEveryOperationHasAGoldenPair(t *testing.T) {
	for name := range table {
		if name == "library.info" {
			continue // names the Go version and the platform
		}
		require.FileExists(t, filepath.Join(goldenDir, name+".json"))
	}
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.json"))
	require.NoError(t, err)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		if name != "envelope" {
			require.Contains(t, table, name)
		}
	}
}

func readGolden(t *testing.T, file string) []goldenPair {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var pairs []goldenPair
	require.NoError(t, jsontext.Decode(raw, &pairs))
	require.NotEmpty(t, pairs)
	return pairs
}

func writeGolden(t *testing.T, file string, pairs []goldenPair) {
	t.Helper()
	out, err := json.Marshal(pairs)
	require.NoError(t, err)
	var pretty bytes.Buffer
	require.NoError(t, json.Indent(&pretty, out, "", " "))
	require.NoError(t, os.WriteFile(file, append(pretty.Bytes(), '\n'), 0o644))
}
