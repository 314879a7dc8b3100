package api

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/require"
)

// called runs an operation and decodes its result.
func called(t *testing.T, op, args string) (result map[string]any) {
	t.Helper()
	var a struct {
		OK     bool           `json:"ok"`
		Result map[string]any `json:"result"`
		Error  any            `json:"error"`
	}
	require.NoError(t, json.Unmarshal(Call(fmt.Appendf(nil, `{"v":1,"op":%q,"args":%s}`, op, args)), &a))
	require.True(t, a.OK, "%v", a.Error)
	return a.Result
}

func TestTraceByHandle(t *testing.T) {
	path, err := filepath.Abs("../memory/testdata/wav2vec2.trace")
	require.NoError(t, err)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	opened := called(t, "memory.open", fmt.Sprintf(`{"path":%q}`, path))
	again := called(t, "memory.open", fmt.Sprintf(`{"trace":%q}`, base64.StdEncoding.EncodeToString(content)))
	require.NotEqual(t, opened["trace"], again["trace"])
	require.Equal(t, opened["storages"], opened["exact"])
	require.Equal(t, "Wav2Vec2ForCTC", opened["about"].(map[string]any)["model"])
	require.Contains(t, opened["points"], map[string]any{"kind": "micro", "batch": 5.0, "length": 73186.0, "labels": 7.0})

	question := `{"trace":%v,"batch":4,"length":80000,"labels":30,"limit_bytes":null,"device_bytes":null}`
	one := called(t, "memory.simulate", fmt.Sprintf(question, opened["trace"]))
	require.Equal(t, one, called(t, "memory.simulate", fmt.Sprintf(question, again["trace"])))
	require.Greater(t, one["peak_reserved"], one["peak_allocated"])

	// The model was recorded without column sums, so the GPU changes nothing.
	gpu := `{"trace":%v,"batch":4,"length":80000,"labels":30,"multiprocessors":132,"threads_per_multiprocessor":1536}`
	require.Equal(t, one, called(t, "memory.simulate", fmt.Sprintf(gpu, opened["trace"])))
	run := `{"trace":%v,"lengths":[80000,70000],"batch":2,"steps":1,"seeds":1,"multiprocessors":%d,"threads_per_multiprocessor":2048}`
	called(t, "memory.run", fmt.Sprintf(run, opened["trace"], 132))
	refused := fmt.Sprintf(run, opened["trace"], 0)
	require.Contains(t, string(Call(fmt.Appendf(nil, `{"v":1,"op":"memory.run","args":%s}`, refused))), "multiprocessors is 0")

	handle := fmt.Sprintf(`{"trace":%v}`, opened["trace"])
	called(t, "memory.close", handle)
	require.Contains(t, string(Call(fmt.Appendf(nil, `{"v":1,"op":"memory.close","args":%s}`, handle))), "not_found")
	called(t, "memory.close", fmt.Sprintf(`{"trace":%v}`, again["trace"]))
}
