// Measures llama.cpp for compare.py, one run a line. Arguments: the entry file of node-llama-cpp,
// the model, the threads. First line written: what computes. Then for every line read,
// {"ids": [...], "tokens": N}, one line {"prefill_ms", "decode_ms"}: from the start to the first
// token, and from the first token to the last, greedy, in an empty context, past ends of text.
import process from "node:process";
import readline from "node:readline";
import {pathToFileURL} from "node:url";

const [entry, modelPath, threadsText] = process.argv.slice(2);
const threads = Number(threadsText);
const {getLlama, GgmlType} = await import(pathToFileURL(entry).href);
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: threads});
const model = await llama.loadModel({modelPath});
// Everything that decides the speed is left as the package has it: F16 cache, flash attention.
const context = await model.createContext({
    contextSize: 1024, sequences: 1, batchSize: 512, threads: {ideal: threads, min: threads}
});
const sequence = context.getSequence();

const write = (object) => process.stdout.write(JSON.stringify(object) + "\n");
write({
    llama_cpp: llama.llamaCppRelease.release,
    flash_attention: context.flashAttention,
    kv_cache: GgmlType[context.kvCacheKeyType] ?? "F16",
    threads: context.currentThreads
});

for await (const line of readline.createInterface({input: process.stdin})) {
    const {ids, tokens} = JSON.parse(line);
    await sequence.clearHistory();
    const start = performance.now();
    let first, last, count = 0;
    for await (const _ of sequence.evaluate(ids, {temperature: 0, yieldEogToken: true})) {
        last = performance.now();
        first ??= last;
        if (++count === tokens) break;
    }
    if (count !== tokens) throw new Error(`${count} tokens came instead of ${tokens}`);
    write({prefill_ms: first - start, decode_ms: last - first});
}
process.exit(0);
