// Command fit writes core/timing/kernel/fitted.json from operator measurements that NeuSight publishes (ASPLOS 2025, MIT licence):
// a copy of github.com/sitar-lab/NeuSight's scripts/asplos/data/dataset/train/collect, 60 MB, is its argument.
//
//	go run ./benchmarks/time_truth/fit COLLECT > core/timing/kernel/fitted.json
//
// Every fifth row is kept from the fit; what the model is off on those goes to stderr and into the file as residuals.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/asrconfig/asrconfig-go/core/gpus"
	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

const source = "github.com/sitar-lab/NeuSight (MIT), scripts/asplos/data/dataset/train/collect, p2.1.0: float32 operators, torch 2.1, CUDA 12.1; fitted by benchmarks/time_truth/fit"

// measured are the cards of the tables, by the catalogue's key.
var measured = []struct{ key, file, convolutions string }{
	{"P100-16", "Tesla P100-PCIE-16GB", "Tesla P100-PCIE-16GB"},
	{"V100-16GB PCIe", "Tesla V100-PCIE-32GB", "Tesla V100-PCIE-32GB"},
	{"T4", "Tesla T4", "Tesla T4"},
	{"A100-40GB PCIe", "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe"},
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("usage: fit COLLECT, the folder with linear/, bmm/, conv/, softmax/, ln/, add/")
	}
	result := kernel.Fitted{Source: source, Cards: map[string]kernel.Fit{}}
	var known []kernel.Card
	for _, card := range measured {
		entry, _, err := gpus.Parse(card.key)
		if err != nil {
			return err
		}
		parsed, err := kernel.CardOf(entry)
		if err != nil {
			return err
		}
		known = append(known, parsed)
		fit, err := fitCard(tables{os.Args[1], card.file, card.convolutions}, parsed)
		if err != nil {
			return fmt.Errorf("fitting %s: %w", card.key, err)
		}
		result.Cards[card.key] = fit
	}
	var err error
	if result.Carried, err = carried(result, known); err != nil {
		return err
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	return encoder.Encode(result)
}

// neighbours are the cards, by their place in measured, whose shares are carried to others, each with one of another generation.
var neighbours = [][2]int{{1, 3}, {3, 1}}

// carried is how far products are off by a neighbour's shares: the widest of both directions.
func carried(result kernel.Fitted, known []kernel.Card) (map[string]profile.Range, error) {
	widest := map[string]profile.Range{}
	for _, pair := range neighbours {
		of, by := measured[pair[0]], result.Cards[measured[pair[1]].key]
		for table, e := range map[string]kernel.Efficiency{"linear": by.Single, "bmm": by.Batched} {
			rows, err := tables{os.Args[1], of.file, of.convolutions}.products(table)
			if err != nil {
				return nil, err
			}
			card := known[pair[0]]
			_, held := split(rows, typical)
			off := spread(held, func(r row) float64 { return e.Seconds(r.operation, card, card.FP32) })
			if before, seen := widest[table]; seen {
				off = profile.Range{Low: min(off.Low, before.Low), Likely: 1, High: max(off.High, before.High)}
			}
			widest[table] = off
		}
	}
	return widest, nil
}

func fitCard(from tables, card kernel.Card) (fit kernel.Fit, err error) {
	fit.Residuals = map[string]profile.Range{}
	for _, products := range []struct {
		table string
		to    *kernel.Efficiency
	}{{"linear", &fit.Single}, {"bmm", &fit.Batched}} {
		rows, err := from.products(products.table)
		if err != nil {
			return fit, err
		}
		*products.to, fit.Residuals[products.table] = fitProducts(rows, card)
		fmt.Fprintf(os.Stderr, "%-15s %-14s %.3f measured/predicted %.2f\n", card.Key, products.table, *products.to, fit.Residuals[products.table])
	}
	if fit.Bandwidth, err = fitMemory(from, card, fit.Residuals); err != nil {
		return fit, err
	}
	rows, err := from.convolutions()
	if err != nil {
		return fit, err
	}
	fit.Convolution, fit.Residuals["conv"] = fitConvolutions(rows, card, fit.Single)
	fmt.Fprintf(os.Stderr, "%-15s bandwidth %v convolution × %.2f %.2f\n", card.Key, fit.Bandwidth, fit.Convolution, fit.Residuals["conv"])
	return fit, nil
}
