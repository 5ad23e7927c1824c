# Every topic. Internal ones such as __consumer_offsets are never copied, also with --whitelist=".*"
mirror mm1 --consumer.config sourceClusterConsumer.properties --producer.config targetClusterProducer.properties --blacklist="__consumer-offsets"
