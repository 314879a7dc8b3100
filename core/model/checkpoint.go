package model

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const (
	maxIndexBytes = 64 << 20 // of model.safetensors.index.json: a line per tensor
	maxShards     = 1024
)

// fromFolder counts from config.json. Weights are looked at only when the architecture is not known here: beside a known
// config they may hold more, such as pre-training heads, or less, such as a head that fine-tuning has yet to make.
func fromFolder(r Request) (profile.Model, error) {
	raw, err := folderConfig(r.Folder)
	if err != nil {
		return profile.Model{}, err
	}
	f, kind, name, err := readConfig(raw)
	if err != nil {
		return profile.Model{}, inFolder(err, r.Folder)
	}
	if _, exact := families[kind]; !exact {
		return fromWeights(r, f, kind)
	}
	m, err := fromConfig(r, raw)
	if err != nil {
		return profile.Model{}, inFolder(err, r.Folder)
	}
	if m.Source = "folder"; name == "" {
		m.Name = filepath.Base(filepath.Clean(r.Folder))
	}
	return m, nil
}

func folderConfig(folder string) ([]byte, error) {
	raw, err := readBounded(filepath.Join(folder, "config.json"), maxConfigBytes)
	if err != nil {
		return nil, inFolder(err, folder)
	}
	return raw, nil
}

// inFolder says which folder an error is about.
func inFolder(err error, folder string) error {
	known := fault.From(err)
	return fault.Wrap(err, known.Code, known.Hint, "reading the model folder %s", folder)
}

// fromWeights takes an architecture that is not known here from the headers of its weight files. All parameters count as
// trainable, since the files do not say.
func fromWeights(r Request, f *fields, kind string) (profile.Model, error) {
	files, err := weightFiles(r.Folder)
	if err != nil {
		return profile.Model{}, inFolder(err, r.Folder)
	}
	if len(files) == 0 {
		return profile.Model{}, inFolder(unknownFamily(kind), r.Folder)
	}
	if r.Head != "" || r.FreezeFeatureEncoder {
		return profile.Model{}, fault.New(fault.Unsupported, "pass the live module", "model_type %q is counted from its weights as they are, without head or freeze_feature_encoder", fault.Shorten(kind))
	}
	var sum weights
	for _, file := range files {
		one, err := fileWeights(filepath.Join(r.Folder, file))
		if err != nil {
			return profile.Model{}, inFolder(err, filepath.Join(r.Folder, file))
		}
		sum.elements, sum.factored = sum.elements+one.elements, sum.factored+one.factored
	}
	if sum.elements == 0 || sum.elements > maxElements {
		return profile.Model{}, fault.New(fault.InvalidArgument, "pass the live module", "the weights in %s hold %d parameters; the range is 1 to 2^50", r.Folder, sum.elements)
	}
	c := counted{class: f.firstOf("architectures"), parameterCounter: parameterCounter{total: sum.elements, trainable: sum.elements, factored: sum.factored}}
	m := c.describe(filepath.Base(filepath.Clean(r.Folder)), kind, "folder")
	m.HiddenSize, m.Layers = f.commonSizes()
	if f.problems.err != nil {
		return profile.Model{}, inFolder(f.problems.err, r.Folder)
	}
	return m, nil
}

// commonSizes looks for hidden size and layers under the names that most configs use; nil when absent.
func (f *fields) commonSizes() (hidden, layers *int) {
	for _, key := range []string{"hidden_size", "d_model", "n_embd", "dim"} {
		if hidden == nil && f.given(key) {
			n := f.size(key, 0)
			hidden = &n
		}
	}
	switch {
	case f.given("encoder_layers") && f.given("decoder_layers"):
		n := f.layers("encoder_layers", 0) + f.layers("decoder_layers", 0)
		layers = &n
	case f.given("num_hidden_layers"):
		n := f.layers("num_hidden_layers", 0)
		layers = &n
	}
	return hidden, layers
}

// weightFiles lists the files of the model in transformers' order of preference: model.safetensors, the shards of the
// index, else the only *.safetensors there is (several may be language adapters). Empty when there are none.
func weightFiles(folder string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(folder, "model.safetensors")); err == nil {
		return []string{"model.safetensors"}, nil
	}
	raw, err := readBounded(filepath.Join(folder, "model.safetensors.index.json"), maxIndexBytes)
	switch {
	case err == nil:
		return shards(raw)
	case fault.From(err).Code != fault.NotFound:
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(escapeGlob(folder), "*.safetensors"))
	if err != nil || len(found) != 1 {
		return nil, err
	}
	return []string{filepath.Base(found[0])}, nil
}

// escapeGlob keeps signs in a folder's name from being read as a pattern.
func escapeGlob(path string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `\`, `\\`).Replace(path)
}

func shards(raw []byte) ([]string, error) {
	var listing struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(raw, &listing); err != nil {
		return nil, fault.Wrap(err, fault.Corrupt, "save or download the weights again", "model.safetensors.index.json")
	}
	var files []string
	for _, file := range listing.WeightMap {
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
		if file == ".." || filepath.Base(file) != file || len(files) > maxShards {
			return nil, fault.New(fault.Corrupt, "save or download the weights again",
				"model.safetensors.index.json names %q; it may name up to %d files beside it", fault.Shorten(file), maxShards)
		}
	}
	return files, nil
}

func fileWeights(path string) (weights, error) {
	file, err := openFile(path)
	if err != nil {
		return weights{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return weights{}, fault.Wrap(err, fault.NotFound, "", "reading the size")
	}
	return readHeader(file, info.Size())
}

func openFile(path string) (*os.File, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.New(fault.NotFound, "give the folder that save_pretrained wrote, with config.json in it", "there is no file %s", path)
	case err != nil:
		return nil, fault.Wrap(err, fault.InvalidArgument, "check the path and its permissions", "opening")
	case !info.Mode().IsRegular(): // a pipe would block
		return nil, fault.New(fault.InvalidArgument, "give the folder that save_pretrained wrote", "%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(err, fault.InvalidArgument, "check the path and its permissions", "opening")
	}
	return file, nil
}

func readBounded(path string, limit int64) ([]byte, error) {
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return nil, fault.Wrap(err, fault.Corrupt, "check the file", "reading %s", path)
	case int64(len(raw)) > limit:
		return nil, fault.New(fault.InvalidArgument, "check that it is the right file", "%s is larger than %d bytes", path, limit)
	}
	return raw, nil
}
