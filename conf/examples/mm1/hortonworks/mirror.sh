# Two topics, from the source to the target, under the same names; the run ends where the target refuses a record.
mirror mm1 --consumer.config sourceClusterConsumer.properties --producer.config targetClusterProducer.properties --whitelist="topic1, topic2" --abort.on.send.fail
