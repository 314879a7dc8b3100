package api

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
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
	require.Equal(t, "Wav2Vec2ForCTC", opened["about"].(map[string]any)["model"])
	require.Contains(t, opened["points"], map[string]any{"kind": "micro", "batch": 5.0, "length": 73186.0, "labels": 7.0})

	question := `{"trace":%v,"batch":4,"length":80000,"labels":30,"limit_bytes":null,"device_bytes":null}`
	one := called(t, "memory.simulate", fmt.Sprintf(question, opened["trace"]))
	require.Equal(t, one, called(t, "memory.simulate", fmt.Sprintf(question, again["trace"])))
	require.Greater(t, one["peak_reserved"], one["peak_allocated"])

	// The model was recorded without column sums, so the GPU changes nothing.
	gpu := `{"trace":%v,"batch":4,"length":80000,"labels":30,"multiprocessors":132,"threads_per_multiprocessor":1536}`
	require.Equal(t, one, called(t, "memory.simulate", fmt.Sprintf(gpu, opened["trace"])))
	run := `{"trace":%v,"windows":[[[2,80000,30]]],"multiprocessors":%d,"threads_per_multiprocessor":2048}`
	called(t, "memory.run", fmt.Sprintf(run, opened["trace"], 132))
	refused := fmt.Sprintf(run, opened["trace"], 0)
	require.Contains(t, string(Call(fmt.Appendf(nil, `{"v":1,"op":"memory.run","args":%s}`, refused))), "multiprocessors is 0")

	handle := fmt.Sprintf(`{"trace":%v}`, opened["trace"])
	called(t, "memory.close", handle)
	require.Contains(t, string(Call(fmt.Appendf(nil, `{"v":1,"op":"memory.close","args":%s}`, handle))), "not_found")
	called(t, "memory.close", fmt.Sprintf(`{"trace":%v}`, again["trace"]))
}

func TestScanReadsAnArrowTable(t *testing.T) {
	data := append(wav(1), wav(2)...)
	var offsets, indices []byte
	for _, n := range []int{0, len(wav(1)), len(data)} {
		offsets = binary.LittleEndian.AppendUint64(offsets, uint64(n))
	}
	for _, n := range []uint64{1, 0, 1} {
		indices = binary.LittleEndian.AppendUint64(indices, n)
	}
	var pinner runtime.Pinner // a slice on the stack would move with it
	defer pinner.Unpin()
	at := func(b []byte) uintptr {
		pinner.Pin(&b[0])
		return uintptr(unsafe.Pointer(&b[0]))
	}
	column := arrowColumnArgs{Offsets: at(offsets), Width: 64, Data: at(data), Size: len(data)}
	table := arrowArgs{Batches: []arrowBatchArgs{{Rows: 2, Bytes: &column}}, Indices: at(indices), Count: 3}
	job, _ := scanned(t, map[string]any{"arrow": table})
	sum := answered[profile.Dataset](t, "scan.result", jobRef{Job: job})
	require.Equal(t, []any{3, 5.0 / 3}, []any{sum.MeasuredCount, sum.MeanS})
	answered[struct{}](t, "scan.cancel", jobRef{Job: job})

	for name, wrong := range map[string]arrowArgs{
		"rows":    {Batches: []arrowBatchArgs{{Rows: -1, Bytes: &column}}},
		"from":    {Batches: []arrowBatchArgs{{Rows: 1, Bytes: &arrowColumnArgs{From: maxArrowRows + 1, Width: 32}}}},
		"width":   {Batches: []arrowBatchArgs{{Rows: 1, Bytes: &arrowColumnArgs{Offsets: 1, Width: 8}}}},
		"address": {Batches: []arrowBatchArgs{{Rows: 1, Bytes: &arrowColumnArgs{Width: 32}}}},
		"count":   {Indices: 1, Count: -1},
	} {
		_, code := ask[jobRef](t, "scan.start", map[string]any{"arrow": wrong})
		require.Equal(t, fault.InvalidArgument, code, name)
	}
}

func TestScanGivesTexts(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a.wav"), wav(1), 0o644))
	list := filepath.Join(folder, "m.jsonl")
	require.NoError(t, os.WriteFile(list, []byte(`{"path":"a.wav","text":"hi"}`+"\n"+`{"path":"a.wav"}`+"\n"), 0o644))
	job, _ := scanned(t, map[string]any{"manifest": list, "texts": true})
	hi := "hi"
	for _, page := range []struct {
		offset, limit int
		want          []*string
	}{{0, 5, []*string{&hi, nil}}, {1, 1, []*string{nil}}, {9, 1, []*string{}}} {
		texts := answered[[]*string](t, "scan.texts", clipsArgs{finishedRef: finishedRef{jobRef{job}}, Offset: page.offset, Limit: page.limit})
		require.Equal(t, page.want, texts)
	}
	_, code := ask[[]*string](t, "scan.texts", clipsArgs{finishedRef: finishedRef{jobRef{job}}})
	require.Equal(t, fault.InvalidArgument, code)
	clips := pageOf(t, clipsArgs{finishedRef: finishedRef{jobRef{job}}, Limit: 9})
	require.Equal(t, 2, clips.Count)
}

func TestScanListsRows(t *testing.T) {
	list := filepath.Join(t.TempDir(), "m.csv")
	require.NoError(t, os.WriteFile(list, []byte("path,text,split\na.wav,hi,dev\nb.wav\n"), 0o644))
	job, _ := scanned(t, map[string]any{"manifest": list, "list": true, "columns": []string{"split"}})
	for _, page := range []struct {
		offset, limit int
		want          []string
	}{{0, 5, []string{"a.wav", "b.wav"}}, {1, 1, []string{"b.wav"}}, {9, 1, nil}} {
		table := answered[tablePage](t, "scan.rows", clipsArgs{finishedRef: finishedRef{jobRef{job}}, Offset: page.offset, Limit: page.limit})
		require.Equal(t, []string{"path", "text", "split"}, table.Columns)
		var names []string
		for _, row := range table.Rows {
			names = append(names, filepath.Base(row.Path))
		}
		require.Equal(t, page.want, names)
	}
	measured := inRows(t, map[string]any{"path": "a.wav", "duration_s": 1})
	table := answered[tablePage](t, "scan.rows", clipsArgs{finishedRef: finishedRef{jobRef{measured}}, Limit: 1})
	require.Empty(t, table.Rows)
	_, code := ask[tablePage](t, "scan.rows", clipsArgs{finishedRef: finishedRef{jobRef{job}}})
	require.Equal(t, fault.InvalidArgument, code)
}

func TestOrderOfAttachedDurations(t *testing.T) {
	request := []byte(`{"v":1,"op":"batching.order","args":{"options":{"mode":"random","step_samples":2,"ranks":1,"buckets":1}}}`)
	request = append(request, 0)
	for _, s := range []float64{3, 1, 4, 1.5, 9} {
		request = binary.LittleEndian.AppendUint64(request, math.Float64bits(s))
	}
	text, order, _ := bytes.Cut(Call(request), []byte{0})
	var got struct {
		OK     bool
		Result struct {
			Steps int
			Tail  []int
		}
	}
	require.NoError(t, json.Unmarshal(text, &got))
	require.True(t, got.OK, "%s", text)
	assert.Equal(t, 2, got.Result.Steps)
	assert.Equal(t, []int{1}, got.Result.Tail)
	require.Len(t, order, 20)
	numbers := make([]uint32, 5)
	require.NoError(t, binary.Read(bytes.NewReader(order), binary.LittleEndian, numbers))
	slices.Sort(numbers)
	assert.Equal(t, []uint32{0, 1, 2, 3, 4}, numbers)
	assert.Contains(t, string(Call(append(request, 1))), "41 attached bytes are not a whole number of durations")
}
