package dataset

import (
	"archive/tar"
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// sent returns the pages of a scan as they come at another machine, few clips each.
func sent(t *testing.T, c *Clips) (pieces []*Piece) {
	t.Helper()
	for at := 0; at == 0 || at < c.Len(); at += 3 {
		page := c.Page(at, 3)
		text, err := json.Marshal(&page)
		require.NoError(t, err)
		piece := &Piece{Page: new(Page), Columns: make([]byte, page.Size())}
		page.Write(piece.Columns)
		require.NoError(t, json.Unmarshal(text, piece.Page))
		pieces = append(pieces, piece)
	}
	return pieces
}

// joined scans a source in parts and puts them together.
func joined(t *testing.T, r Request, count int) Result {
	t.Helper()
	c := NewCollection(r.Options)
	var source string
	var progress Progress
	for index := range count {
		part := r
		part.Part, part.AllowEmpty = &Part{index, count}, true
		result := scan(t, part)
		source = result.Profile.Source
		for _, piece := range sent(t, result.Clips) {
			require.NoError(t, c.Add(context.Background(), piece, &progress))
		}
	}
	assert.EqualValues(t, c.clips.Len(), progress.Done.Load())
	result, err := c.Finish(context.Background(), Ending{Source: source})
	require.NoError(t, err)
	return result
}

func TestPartsOfAScanMakeTheWhole(t *testing.T) {
	one, two, other := noisy(16000, 1), noisy(32000, 1), wavOf(8000)
	short := append(wavOf(16000)[:44:44], make([]byte, 9000)...) // claims more
	strange := "caf\xe9 é漢.wav"
	root := tree(t, map[string][]byte{
		"a/1.wav": one, "a/2.wav": one, "a/3.wav": []byte("text"), "a/" + strange: two, "b/1.wav": short, "b/2.wav": {}, "b/3.wav": other, "c.wav": one,
		"shards/0.tar": tarOf(t, tar.FormatUSTAR, "1.wav", one, "2.wav", short), "shards/1.tar": []byte("none"), "shards/2.tar": tarOf(t, tar.FormatUSTAR, "3.wav", two),
		"list.jsonl": []byte(`{"audio_filepath":"a/1.wav","offset":0.25,"duration":0.5}` + "\nbad\n" +
			`{"audio_filepath":"a/1.wav","offset":0.5,"duration":2}` + "\n" + `{"audio_filepath":"none.wav"}` + "\n" + `{"audio_filepath":"c.wav"}` + "\n"),
		"kaldi/wav.scp": []byte("u1 sox a |\nu2 ../c.wav\nu3\n"), "kaldi/utt2dur": []byte("u1 1.5\n"),
	})
	at := func(name string) string { return filepath.Join(root, name) }
	options := Options{BatchSize: 2, Seed: 7}
	cases := map[string]Request{
		"folder":           {Folder: at("a")},
		"paths":            {Paths: []string{at("c.wav"), at("none.wav"), at("a"), at("shards/0.tar"), at("b")}},
		"manifest":         {Manifest: at("list.jsonl")},
		"Kaldi":            {Folder: at("kaldi")},
		"shards":           {Shards: []string{at("shards/{0,1,2,3}.tar")}},
		"folder of shards": {Folder: at("shards")},
	}
	for name, r := range cases {
		r.Options = options
		whole := scan(t, r)
		for _, count := range []int{1, 2, 5, 40} {
			got := joined(t, r, count)
			assert.Equal(t, whole.Profile, got.Profile, "%s in %d parts", name, count)
			assert.Equal(t, all(whole.Clips), all(got.Clips), "%s in %d parts", name, count)
		}
	}
	assert.Positive(t, scan(t, cases["folder"]).Profile.Duplicates.Count, "digests matter")
}

func TestPartsOfASourceThatChanges(t *testing.T) {
	root := tree(t, map[string][]byte{"1.wav": wavOf(100), "2.wav": wavOf(100)})
	c := NewCollection(Options{})
	first := sent(t, scan(t, Request{Folder: root, Part: &Part{0, 2}}).Clips)
	require.NoError(t, os.Rename(filepath.Join(root, "1.wav"), filepath.Join(root, "3.wav")))
	second := sent(t, scan(t, Request{Folder: root, Part: &Part{1, 2}}).Clips)
	require.NoError(t, c.Add(context.Background(), first[0], new(Progress)))
	err := c.Add(context.Background(), second[0], new(Progress))
	require.ErrorContains(t, err, "found different files")
	assert.Equal(t, fault.Corrupt, fault.From(err).Code)
}

func TestPartsThatCannotBeMeant(t *testing.T) {
	size := 1
	for _, r := range []Request{
		{Part: &Part{-1, 2}}, {Part: &Part{2, 2}}, {Part: &Part{0, 0}}, {Part: &Part{0, maxParts + 1}}, {Part: &Part{0, 2}, SampleSize: &size},
	} {
		r.Paths = []string{"a.wav"}
		_, err := Scan(context.Background(), r, new(Progress))
		require.Error(t, err)
		assert.Equal(t, fault.InvalidArgument, fault.From(err).Code)
	}
}

func TestBrokenPages(t *testing.T) {
	root := tree(t, map[string][]byte{"1.wav": wavOf(100), "2.wav": []byte("text"), "é.wav": append(wavOf(16000)[:44:44], make([]byte, 900)...)})
	whole := scan(t, Request{Folder: root, Part: &Part{0, 1}}).Clips
	put := func(at int, value byte) func(*Piece) {
		return func(p *Piece) { p.Columns[at] = value }
	}
	cases := map[string]func(*Piece){
		"count":            func(p *Piece) { p.Page.Count = -1 },
		"too many":         func(p *Piece) { p.Page.Count = math.MaxInt },
		"fewer bytes":      func(p *Piece) { p.Columns = p.Columns[:len(p.Columns)-1] },
		"more bytes":       func(p *Piece) { p.Columns = append(p.Columns, 'x') },
		"negative":         put(7, 0xbf),
		"unknown kind":     put(24*3, 9),
		"long path":        put(28*3+8+3, 1),
		"claim elsewhere":  func(p *Piece) { p.Page.Claims[0].Index = 3 },
		"claim of bad":     func(p *Piece) { p.Page.Claims[0].Index = 1 },
		"claim of nothing": func(p *Piece) { p.Page.Claims[0].Seconds = math.NaN() },
		"error elsewhere":  func(p *Piece) { p.Page.Errors[0].Index = -1 },
		"error of good":    func(p *Piece) { p.Page.Errors[0].Index = 0 },
		"no error":         func(p *Piece) { p.Page.Errors = nil },
	}
	for name, spoil := range cases {
		pieces := sent(t, whole)
		require.Len(t, pieces, 1)
		require.NoError(t, NewCollection(Options{}).Add(context.Background(), sent(t, whole)[0], new(Progress)))
		spoil(pieces[0])
		c := NewCollection(Options{})
		err := c.Add(context.Background(), pieces[0], new(Progress))
		require.Error(t, err, name)
		assert.Equal(t, fault.Corrupt, fault.From(err).Code, name)
		assert.Zero(t, c.clips.Len(), name)
	}
}

func FuzzPage(f *testing.F) {
	f.Add([]byte(`{"count":1,"kind_list":[{}],"errors":[{"index":0,"error":"bad"}]}`), make([]byte, rowBytes))
	f.Fuzz(func(t *testing.T, text, columns []byte) {
		var page Page
		if json.Unmarshal(text, &page) != nil {
			return
		}
		c := NewCollection(Options{})
		if c.Add(context.Background(), &Piece{Page: &page, Columns: columns}, new(Progress)) == nil {
			assert.Equal(t, page.Count, c.clips.Len())
			_, err := c.Finish(context.Background(), Ending{AllowEmpty: true})
			assert.NoError(t, err)
		}
	})
}
