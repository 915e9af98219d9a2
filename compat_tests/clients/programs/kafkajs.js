// kafkajs, as a program that program.py speaks with.
'use strict'

const readline = require('node:readline')
const { CompressionTypes, Kafka, Partitioners, logLevel } = require('kafkajs')

const SESSION_MS = 10000
const HEARTBEAT_MS = 200
const METADATA_MS = 500
const TRANSACTION = 10
const MOST_AT_ONCE = 2000 // one send is one batch per partition
const CODECS = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }
const ACKS = { all: -1, 1: 1, 0: 0 }

const kafka = new Kafka({
  clientId: 'kafkajs',
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 20 },
})
const admin = kafka.admin({ retry: { retries: 5 } })
const producers = new Map()
let consumers = 0

const toBytes = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const toText = (data) => (data === null || data === undefined ? null : data.toString('base64'))
const report = (answer) => process.stdout.write(JSON.stringify(answer) + '\n')

// Kafka's number lies at a different depth in each kind of error.
function codeOf(error) {
  if (!error || typeof error !== 'object') return undefined
  if (typeof error.code === 'number') return error.code
  if (typeof error.errorCode === 'number' && error.errorCode) return error.errorCode
  const inner = [error.cause, error.error, ...(error.errors || []), ...(error.groups || []), ...(error.partitions || [])]
  return inner.map(codeOf).find((code) => code !== undefined)
}

// Lines come by themselves; a member waits for the next one while it works.
const lines = []
let ended = false
let wake = () => {}

async function nextLine() {
  while (!lines.length && !ended) await new Promise((resolve) => (wake = resolve))
  return lines.shift()
}

async function producerFor({ idempotent = false }) {
  if (!producers.has(idempotent)) {
    const options = { idempotent, maxInFlightRequests: 1, createPartitioner: Partitioners.DefaultPartitioner }
    const producer = kafka.producer({ ...options, metadataMaxAge: METADATA_MS })
    await producer.connect()
    producers.set(idempotent, producer)
  }
  return producers.get(idempotent)
}

function toHeaders(headers) {
  const found = {}
  for (const [name, value] of headers) {
    const data = toBytes(value)
    found[name] = name in found ? [].concat(found[name], data) : data
  }
  return found
}

async function produce({ topic, records, codec = 'none', acks = 'all', idempotent = false }) {
  const messages = records.map(({ key, value, headers, partition, timestamp }) => ({
    key: toBytes(key),
    value: toBytes(value),
    headers: toHeaders(headers),
    ...(partition === null ? {} : { partition }),
    ...(timestamp === null ? {} : { timestamp: String(timestamp) }),
  }))
  const producer = await producerFor({ idempotent })
  const offsets = []
  for (let first = 0; first < messages.length; first += MOST_AT_ONCE) {
    const some = messages.slice(first, first + MOST_AT_ONCE)
    const answers = await producer.send({ topic, messages: some, acks: ACKS[acks], compression: CODECS[codec] })
    const next = Object.fromEntries((answers || []).map((one) => [one.partition, Number(one.baseOffset)]))
    for (const { partition } of some) offsets.push([partition, next[partition]++])
  }
  return { offsets }
}

// There is no assignment without a group: one that is used only here, whose offsets are where to start.
async function consume({ topic, starts, count, reset = 'earliest', timeout_ms = 30000 }) {
  const groupId = `only-here-${process.pid}-${consumers++}`
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100, heartbeatInterval: HEARTBEAT_MS })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: reset === 'earliest' })
  const records = []
  const done = new Promise((resolve, reject) => {
    setTimeout(resolve, timeout_ms).unref()
    const eachMessage = async ({ partition, message }) => {
      if (partition in starts && records.length < count) records.push(received(partition, message))
      if (records.length === count) resolve()
    }
    consumer.run({ autoCommit: false, eachMessage }).catch(reject)
  })
  for (const [partition, offset] of Object.entries(starts)) {
    consumer.seek({ topic, partition: Number(partition), offset: String(offset) })
  }
  await done
  await consumer.disconnect()
  return { records }
}

function received(partition, { offset, key, value, headers, timestamp }) {
  const pairs = Object.entries(headers || {}).flatMap(([name, one]) => [].concat(one).map((v) => [name, toText(v)]))
  return {
    partition,
    offset: Number(offset),
    key: toText(key),
    value: toText(value),
    headers: pairs,
    timestamp: Number(timestamp),
  }
}

async function member({ group, topics, count = null, session_ms = SESSION_MS }) {
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout: session_ms,
    rebalanceTimeout: 10000,
    heartbeatInterval: HEARTBEAT_MS,
    metadataMaxAge: METADATA_MS,
    maxWaitTimeInMs: 100,
  })
  consumer.on(consumer.events.REBALANCING, () => report({ assigned: [] }))
  consumer.on(consumer.events.GROUP_JOIN, ({ payload: { memberAssignment } }) => {
    const pairs = Object.entries(memberAssignment).flatMap(([topic, numbers]) => numbers.map((one) => [topic, one]))
    report({ assigned: pairs })
  })
  await consumer.connect()
  await consumer.subscribe({ topics, fromBeginning: true })
  let got = 0
  let enough
  const full = new Promise((resolve) => (enough = resolve))
  const eachBatch = async ({ batch: { topic, partition, messages }, resolveOffset, isStale, isRunning }) => {
    if (isStale() || !isRunning()) return
    const wanted = messages.slice(0, count === null ? messages.length : count - got)
    if (!wanted.length) return
    got += wanted.length
    report({ records: wanted.map((one) => [topic, partition, Number(one.offset), toText(one.value)]) })
    const { offset } = wanted[wanted.length - 1]
    resolveOffset(offset)
    await consumer.commitOffsets([{ topic, partition, offset: String(Number(offset) + 1) }])
    if (got === count) enough()
  }
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch })
  await Promise.race([nextLine(), full])
  await consumer.disconnect()
  return { left: true }
}

// After an error nobody knows what became of a transaction. A new producer has it ended, one way or the other;
// then the group's offsets tell.
async function copy({ topics: [source, target], group, count, timeout_ms = 30000, session_ms = SESSION_MS }) {
  const ofGroup = { groupId: group, sessionTimeout: session_ms, heartbeatInterval: HEARTBEAT_MS }
  const consumer = kafka.consumer({ ...ofGroup, maxWaitTimeInMs: 100 })
  const createPartitioner = Partitioners.DefaultPartitioner
  let producer = null
  let transactions = 0
  let finish
  const finished = new Promise((resolve) => (finish = resolve))

  async function restart() {
    if (producer !== null) await producer.disconnect().catch(() => {})
    producer = kafka.producer({ transactionalId: group, idempotent: true, maxInFlightRequests: 1, createPartitioner })
    await producer.connect()
  }

  async function attempt(messages, next) {
    const transaction = await producer.transaction()
    await transaction.send({ topic: target, messages: messages.map(({ value }) => ({ value })) })
    const partitions = [{ partition: 0, offset: String(next) }]
    await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: source, partitions }] })
    const isCommit = transactions++ % 3 !== 1
    await (isCommit ? transaction.commit() : transaction.abort())
    return isCommit ? next : copiedBy(group, source)
  }

  async function committed() {
    await restart()
    await (await producer.transaction()).abort()
    return copiedBy(group, source)
  }

  const eachBatch = async ({ batch: { messages }, heartbeat, isStale, isRunning }) => {
    if (isStale() || !isRunning()) return
    const some = messages.slice(0, TRANSACTION)
    const place = await attempt(some, Number(some[some.length - 1].offset) + 1).catch(committed)
    consumer.seek({ topic: source, partition: 0, offset: String(place) })
    if (place >= count) finish()
    await heartbeat()
  }
  await restart()
  await consumer.connect()
  await consumer.subscribe({ topics: [source], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch })
  await Promise.race([finished, new Promise((resolve) => setTimeout(resolve, timeout_ms).unref())])
  await consumer.disconnect()
  await producer.disconnect()
  return { copied: await copiedBy(group, source) }
}

async function copiedBy(groupId, topic) {
  const [found] = await admin.fetchOffsets({ groupId, topics: [topic] })
  return Math.max(Number(found.partitions[0].offset), 0)
}

async function offsets({ topic, at }) {
  const found =
    typeof at === 'number' ? await admin.fetchTopicOffsetsByTimestamp(topic, at) : await admin.fetchTopicOffsets(topic)
  const value = (one) => Number(at === 'earliest' ? one.low : at === 'latest' ? one.high : one.offset)
  return { offsets: Object.fromEntries(found.map((one) => [one.partition, value(one)])) }
}

async function create_topic({ topic, partitions, configs = {} }) {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
  const wanted = { topic, numPartitions: partitions, replicationFactor: 1, configEntries }
  const isNew = await admin.createTopics({ topics: [wanted] })
  // That a topic exists is the one error which is not thrown.
  if (!isNew) throw Object.assign(new Error('the topic exists'), { code: 36 })
}

const delete_topic = ({ topic }) => admin.deleteTopics({ topics: [topic] })

const topics = async () => ({ topics: await admin.listTopics() })

async function describe_topic({ topic }) {
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  return { leaders: Object.fromEntries(topics[0].partitions.map((one) => [one.partitionId, one.leader])) }
}

async function grow_topic({ topic, partitions }) {
  await admin.createPartitions({ topicPartitions: [{ topic, count: partitions }] })
}

async function topic_configs({ topic }) {
  const { resources } = await admin.describeConfigs({ resources: [{ type: 2, name: topic }], includeSynonyms: false })
  return {
    configs: Object.fromEntries(resources[0].configEntries.map((one) => [one.configName, one.configValue])),
  }
}

async function alter_topic_configs({ topic, configs }) {
  const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
  await admin.alterConfigs({ validateOnly: false, resources: [{ type: 2, name: topic, configEntries }] })
}

async function delete_records({ topic, before }) {
  const partitions = Object.entries(before).map(([partition, offset]) => ({
    partition: Number(partition),
    offset: String(offset),
  }))
  await admin.fetchTopicOffsets(topic) // it cannot delete from a topic that it has not met
  await admin.deleteTopicRecords({ topic, partitions })
}

const groups = async () => ({ groups: (await admin.listGroups()).groups.map((one) => one.groupId) })

async function describe_group({ group }) {
  const { groups } = await admin.describeGroups([group])
  return { state: groups[0].state, members: groups[0].members.length }
}

const delete_group = ({ group }) => admin.deleteGroups([group])

async function group_offsets({ group, topic, partitions }) {
  const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  const wanted = found.partitions.filter((one) => partitions.includes(one.partition))
  return { offsets: Object.fromEntries(wanted.map((one) => [one.partition, Number(one.offset)])) }
}

async function alter_group_offsets({ group, topic, offsets }) {
  const partitions = Object.entries(offsets).map(([partition, offset]) => ({ partition: Number(partition), offset }))
  await admin.setOffsets({ groupId: group, topic, partitions })
}

async function cluster() {
  const { brokers, controller } = await admin.describeCluster()
  return { brokers: brokers.map((one) => [one.nodeId, one.host, one.port]), controller }
}

const VERBS = {
  ...{ produce, consume, member, copy, offsets, cluster },
  ...{ create_topic, delete_topic, topics, describe_topic, grow_topic, topic_configs, alter_topic_configs },
  ...{ delete_records, groups, describe_group, delete_group, group_offsets, alter_group_offsets },
}

async function main() {
  const input = readline.createInterface({ input: process.stdin })
  input.on('line', (line) => (lines.push(line), wake()))
  input.on('close', () => ((ended = true), wake()))
  await admin.connect()
  for (let line; (line = await nextLine()) !== undefined; ) {
    const request = JSON.parse(line)
    try {
      const answer = await VERBS[request.do](request)
      report(answer && typeof answer === 'object' && !Array.isArray(answer) ? answer : {})
    } catch (error) {
      report({ error: codeOf(error) ?? -1, text: `${error}` })
    }
  }
  await Promise.all([admin, ...producers.values()].map((one) => one.disconnect()))
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  },
)
