package api

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

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
	sum, code := ask[profile.Dataset](t, "scan.result", jobRef{Job: job})
	require.Empty(t, code)
	require.Equal(t, []any{3, 5.0 / 3}, []any{sum.MeasuredCount, sum.MeanS})
	_, code = ask[struct{}](t, "scan.cancel", jobRef{Job: job})
	require.Empty(t, code)

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
		texts, code := ask[[]*string](t, "scan.texts", clipsArgs{Job: job, Offset: page.offset, Limit: page.limit})
		require.Empty(t, code)
		require.Equal(t, page.want, texts)
	}
	_, code := ask[[]*string](t, "scan.texts", clipsArgs{Job: job})
	require.Equal(t, fault.InvalidArgument, code)
	clips, code := pageOf(t, clipsArgs{Job: job, Limit: 9})
	require.Empty(t, code)
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
		table, code := ask[tablePage](t, "scan.rows", clipsArgs{Job: job, Offset: page.offset, Limit: page.limit})
		require.Empty(t, code)
		require.Equal(t, []string{"path", "text", "split"}, table.Columns)
		var names []string
		for _, row := range table.Rows {
			names = append(names, filepath.Base(row.Path))
		}
		require.Equal(t, page.want, names)
	}
	measured, _ := scanned(t, map[string]any{"clips": []map[string]any{{"path": "a.wav", "duration_s": 1}}})
	table, code := ask[tablePage](t, "scan.rows", clipsArgs{Job: measured, Limit: 1})
	require.Empty(t, code)
	require.Empty(t, table.Rows)
	_, code = ask[tablePage](t, "scan.rows", clipsArgs{Job: job})
	require.Equal(t, fault.InvalidArgument, code)
}
