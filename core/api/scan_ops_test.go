package api

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/dataset"
	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

// ask runs one operation as a caller would and decodes its result; code is "" on success.
func ask[T any](t *testing.T, op string, args any) (result T, code fault.Code) {
	t.Helper()
	result, _, code = exchange[T](t, op, args, nil)
	return result, code
}

// answered is the result of an operation that succeeds.
func answered[T any](t *testing.T, op string, args any) T {
	t.Helper()
	result, code := ask[T](t, op, args)
	require.Empty(t, code)
	return result
}

// exchange does the same with bytes behind the request's JSON, and gives those behind the answer's.
func exchange[T any](t *testing.T, op string, args any, attached []byte) (result T, data []byte, code fault.Code) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"v": 1, "op": op, "args": args})
	require.NoError(t, err)
	if attached != nil {
		raw = append(append(raw, 0), attached...)
	}
	var got struct {
		OK     bool
		Result T
		Error  *errorBody
	}
	text, data, _ := bytes.Cut(Call(raw), []byte{0})
	require.NoError(t, json.Unmarshal(text, &got))
	if !got.OK {
		require.NotNil(t, got.Error)
		return result, nil, got.Error.Code
	}
	return got.Result, data, ""
}

// fullPage is a page with its columns.
type fullPage struct {
	dataset.Page
	columns []byte
}

// pageOf fetches clips with their columns.
func pageOf(t *testing.T, args clipsArgs) (p fullPage) {
	t.Helper()
	var code fault.Code
	p.Page, p.columns, code = exchange[dataset.Page](t, "scan.clips", args, nil)
	require.Empty(t, code)
	return p
}

type polled struct {
	Finished         bool
	Total, Done, Bad int64
}

// scanned starts a scan and waits for its end.
func scanned(t *testing.T, args any) (job uint64, last polled) {
	t.Helper()
	job = answered[jobRef](t, "scan.start", args).Job
	return job, polling(t, job)
}

// inRows runs a scan of rows that come one by one.
func inRows(t *testing.T, rows ...any) (job uint64) {
	t.Helper()
	job = answered[jobRef](t, "scan.open", map[string]any{}).Job
	answered[struct{}](t, "scan.add", map[string]any{"job": job, "rows": rows})
	polling(t, job)
	answered[struct{}](t, "scan.end", map[string]any{"job": job, "source": "rows"})
	polling(t, job)
	return job
}

// bufferRow is a row with a file in memory, which must stay alive.
func bufferRow(name string, file []byte) map[string]any {
	return map[string]any{"path": name, "buffer": map[string]any{"address": uintptr(unsafe.Pointer(unsafe.SliceData(file))), "size": len(file)}}
}

// wav is a 16-bit mono file of 16 kHz.
func wav(seconds float64) []byte {
	data := make([]byte, 2*int(16000*seconds))
	head := fmt.Sprintf("RIFF%sWAVEfmt %s%s%s%s%s%s%sdata%s", u32(36+len(data)), u32(16), u16(1), u16(1), u32(16000), u32(32000), u16(2), u16(16), u32(len(data)))
	return append([]byte(head), data...)
}

func u16(n int) string { return string([]byte{byte(n), byte(n >> 8)}) }
func u32(n int) string { return u16(n&0xffff) + u16(n>>16) }

func secondsOf(p fullPage, i int) float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64(p.columns[8*i:]))
}

func TestScanOfAFolderInPages(t *testing.T) {
	folder := t.TempDir()
	for i := range 5 {
		require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d.wav", i)), wav(float64(i)), 0o644))
	}
	job, last := scanned(t, map[string]any{"folder": folder})
	require.Equal(t, polled{Finished: true, Total: 5, Done: 5, Bad: 1}, last) // the first is empty

	sum := answered[profile.Dataset](t, "scan.result", jobRef{Job: job})
	require.Equal(t, 4, sum.SampleCount)
	for _, page := range []struct{ offset, limit, clips int }{{0, 2, 2}, {3, 10, 2}, {4, math.MaxInt, 1}, {5, 1, 0}, {math.MaxInt, math.MaxInt, 0}} {
		clips := pageOf(t, clipsArgs{finishedRef: finishedRef{jobRef{job}}, Offset: page.offset, Limit: page.limit})
		require.Equal(t, page.clips, clips.Count, "%+v", page)
		require.GreaterOrEqual(t, len(clips.columns), 32*page.clips)
		if page.clips > 0 && page.offset > 0 {
			require.Equal(t, float64(page.offset), secondsOf(clips, 0))
		}
	}
	for _, page := range [][2]int{{-1, 1}, {0, 0}, {0, -1}} {
		wrong := clipsArgs{finishedRef: finishedRef{jobRef{job}}, Offset: page[0], Limit: page[1]}
		_, code := ask[dataset.Page](t, "scan.clips", wrong)
		require.Equal(t, fault.InvalidArgument, code)
	}

	answered[struct{}](t, "scan.cancel", jobRef{Job: job})
	_, code := ask[polled](t, "scan.poll", pollArgs{jobRef: jobRef{job}})
	require.Equal(t, fault.NotFound, code)
}

func TestPathsAreAttached(t *testing.T) {
	folder := t.TempDir()
	names := []string{"a.wav", "caf\xe9.wav", "b.wav"} // the second is no UTF-8
	attached := ""
	for i, name := range names {
		names[i] = filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(names[i], wav(float64(i+1)), 0o644))
		attached += names[i] + "\x00"
	}
	started, data, code := exchange[jobRef](t, "scan.start", map[string]any{"paths": []string{names[2]}}, []byte(attached+"\x00"))
	require.Empty(t, code)
	require.Empty(t, data)
	require.Equal(t, polled{Finished: true, Total: 5, Done: 5, Bad: 1}, polling(t, started.Job), "an empty path is a bad file")
	page := pageOf(t, clipsArgs{finishedRef: finishedRef{started}, Limit: 9})
	var seconds []float64
	for i := range page.Count - 1 {
		seconds = append(seconds, secondsOf(page, i))
	}
	require.Equal(t, []float64{3, 1, 2, 3}, seconds, "after those in the JSON")
	paths := names[2] + names[0] + strings.Replace(names[1], "\xe9", `\xe9`, 1) + names[2]
	require.Equal(t, paths, string(page.columns[32*page.Count:]))

	_, _, code = exchange[jobRef](t, "scan.start", map[string]any{}, []byte("no end"))
	require.Equal(t, fault.InvalidArgument, code)
	_, _, code = exchange[polled](t, "scan.poll", jobRef{Job: started.Job}, []byte("x"))
	require.Equal(t, fault.InvalidArgument, code, "an operation that takes none")
}

func TestScanReadsTheCallersMemory(t *testing.T) {
	file := wav(2)
	job := inRows(t, bufferRow("two seconds", file), bufferRow("empty", nil))
	clips := pageOf(t, clipsArgs{finishedRef: finishedRef{jobRef{job}}, Limit: 2})
	runtime.KeepAlive(file)
	require.Equal(t, 2.0, secondsOf(clips, 0))
	require.Len(t, clips.Errors, 1)
	require.Equal(t, 1, clips.Errors[0].Index)
	answered[struct{}](t, "scan.cancel", jobRef{Job: job})
}

// polling waits for the end of the latest stage.
func polling(t *testing.T, job uint64) polled {
	t.Helper()
	var last polled
	require.Eventually(t, func() bool {
		var code fault.Code
		last, code = ask[polled](t, "scan.poll", pollArgs{jobRef: jobRef{job}, WaitMS: 50})
		return code == "" && last.Finished
	}, 30*time.Second, time.Millisecond)
	return last
}

func TestScanInPieces(t *testing.T) {
	file := wav(2)
	path := filepath.Join(t.TempDir(), "one.wav")
	require.NoError(t, os.WriteFile(path, wav(1), 0o644))
	opened := answered[jobRef](t, "scan.open", map[string]any{})
	_, code := ask[profile.Dataset](t, "scan.result", jobRef{Job: opened.Job})
	require.Equal(t, fault.InvalidArgument, code, "not summed up yet")
	for range 2 {
		_, code = ask[struct{}](t, "scan.add", map[string]any{"job": opened.Job, "rows": []any{
			map[string]any{"path": path},
			map[string]any{"path": "given", "duration_s": 3, "sample_rate": 8000, "method": "given"},
			bufferRow("two seconds", file),
		}})
		require.Empty(t, code)
		polling(t, opened.Job)
	}
	runtime.KeepAlive(file)
	for _, buffer := range []map[string]any{{"address": 0, "size": 4}, {"address": 4096, "size": -1}} {
		_, code = ask[struct{}](t, "scan.add", map[string]any{"job": opened.Job, "rows": []any{map[string]any{"path": "a.flac", "buffer": buffer}}})
		require.Equal(t, fault.InvalidArgument, code)
	}
	population := 12
	answered[struct{}](t, "scan.end", map[string]any{"job": opened.Job, "source": "rows", "population": population, "sampled": true})
	require.Equal(t, polled{Finished: true, Total: 6, Done: 6}, polling(t, opened.Job))
	sum := answered[profile.Dataset](t, "scan.result", jobRef{Job: opened.Job})
	require.Equal(t, []any{"rows", 6, 12}, []any{sum.Source, sum.MeasuredCount, sum.SampleCount})
	page := pageOf(t, clipsArgs{finishedRef: finishedRef{opened}, Limit: 9})
	require.Equal(t, strings.Repeat(path+"giventwo seconds", 2), string(page.columns[32*page.Count:]), "in the order of rows")
	require.Equal(t, []float64{1, 3, 2, 1}, []float64{secondsOf(page, 0), secondsOf(page, 1), secondsOf(page, 2), secondsOf(page, 3)})

	answered[struct{}](t, "scan.end", map[string]any{"job": opened.Job, "population": 1})
	polling(t, opened.Job)
	_, code = ask[profile.Dataset](t, "scan.result", jobRef{Job: opened.Job})
	require.Equal(t, fault.InvalidArgument, code, "a population smaller than its sample")
	_, code = ask[struct{}](t, "scan.add", map[string]any{"job": opened.Job})
	require.Equal(t, fault.InvalidArgument, code, "a failed scan goes on failing")
	job, _ := scanned(t, map[string]any{"paths": []string{path}})
	_, code = ask[struct{}](t, "scan.add", map[string]any{"job": job})
	require.Equal(t, fault.InvalidArgument, code, "it does not accept pieces")
}

func TestScanOfPagesOfOtherScans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "one.wav")
	require.NoError(t, os.WriteFile(path, wav(1), 0o644))
	request := map[string]any{"paths": []string{path, path, "none.wav"}}
	whole, _ := scanned(t, request)
	opened := answered[jobRef](t, "scan.open", map[string]any{})
	for index := range 2 {
		request["part"] = dataset.Part{Index: index, Count: 2}
		part, _ := scanned(t, request)
		page := pageOf(t, clipsArgs{finishedRef: finishedRef{jobRef{part}}, Limit: 9})
		_, _, code := exchange[struct{}](t, "scan.add", map[string]any{"job": opened.Job, "page": page.Page}, page.columns)
		require.Empty(t, code)
		polling(t, opened.Job)
	}
	answered[struct{}](t, "scan.end", map[string]any{"job": opened.Job, "source": "list of 3 paths"})
	require.Equal(t, polled{Finished: true, Total: 3, Done: 3, Bad: 1}, polling(t, opened.Job))
	var sums [2]profile.Dataset
	for i, job := range []uint64{whole, opened.Job} {
		sums[i] = answered[profile.Dataset](t, "scan.result", jobRef{Job: job})
	}
	require.Equal(t, sums[0], sums[1])
	_, _, code := exchange[struct{}](t, "scan.add", map[string]any{"job": opened.Job}, []byte("columns"))
	require.Equal(t, fault.InvalidArgument, code, "columns without a page")
}

func TestScanErrorsComeWithTheResult(t *testing.T) {
	job, _ := scanned(t, map[string]any{"folder": filepath.Join(t.TempDir(), "missing")})
	_, code := ask[profile.Dataset](t, "scan.result", jobRef{Job: job})
	require.Equal(t, fault.NotFound, code)
}

func TestCancelOfARunningScanReturnsAtOnce(t *testing.T) {
	folder := t.TempDir()
	clip := filepath.Join(folder, "a.wav")
	require.NoError(t, os.WriteFile(clip, wav(0.1), 0o644))
	list := filepath.Join(folder, "list.csv")
	require.NoError(t, os.WriteFile(list, []byte("path\n"+strings.Repeat(clip+"\n", 500_000)), 0o644))
	started := answered[jobRef](t, "scan.start", map[string]any{"manifest": list, "workers": 1})
	_, code := ask[profile.Dataset](t, "scan.result", jobRef{Job: started.Job})
	require.Equal(t, fault.InvalidArgument, code, "a running scan has no result")
	answered[struct{}](t, "scan.cancel", jobRef{Job: started.Job})
	_, code = ask[polled](t, "scan.poll", pollArgs{jobRef: jobRef{started.Job}})
	require.Equal(t, fault.NotFound, code)
}

func TestMonitorOverTheTable(t *testing.T) {
	args := map[string]any{"interval_ms": 5, "library_path": "/nowhere/libnvidia-ml.so.1"}
	started := answered[monitorStarted](t, "monitor.start", args)
	require.Empty(t, started.GPUs)
	require.NotEmpty(t, started.GPUError)

	history := answered[struct {
		HostTotalBytes uint64 `json:"host_total_bytes"`
	}](t, "monitor.history", historyArgs{monitorArgs: monitorArgs{Monitor: started.Monitor}})
	require.Positive(t, history.HostTotalBytes)
	for _, op := range []string{"monitor.stop", "monitor.stop", "monitor.run_log", "monitor.alerts", "monitor.activity", "monitor.close"} {
		_, code := ask[map[string]any](t, op, monitorArgs{Monitor: started.Monitor})
		require.Empty(t, code, "a stopped monitor keeps what it saw: %s", op)
	}
	_, code := ask[struct{}](t, "monitor.run_log", monitorArgs{Monitor: started.Monitor})
	require.Equal(t, fault.NotFound, code)
}
